"""A Spark standalone cluster on this machine: a master, workers with directories of their own; pyspark's own jars."""

import json
import os
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from jobs.stack.class_archive import archive_options
from jobs.stack.jars import pyspark_jars
from jobs.stack.ports import Ports
from jobs.stack.process import ManagedProcess, stop_all
from tests.waiting import wait_for

HOST = "127.0.0.1"
STOP_S = 10.0
START_S = 120.0
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -Xss16m -XX:ReservedCodeCacheSize=160m -XX:+UseSerialGC"


class SparkCluster:
    """`cores` a worker has; as many tasks at a time, whatever the machine has. `java_options` suit applications that
    live for a minute here, where executors find the same archive of classes as drivers."""

    def __init__(self, directory: Path, java_home: Path, workers: int, cores: int) -> None:
        self._directory = directory
        self._environ = os.environ | {
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(pyspark_jars().parent),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_LOCAL_IP": HOST,
        }
        self._cores = cores
        self.java_options = f"{SHORT_LIVED} {archive_options(self._environ)}"
        ports = Ports(directory)
        port, self._web = (ports.choose(name, HOST, 0, "") for name in ("master", "web"))
        self.master = f"spark://{HOST}:{port}"
        self._running = [self._start("master", "master.Master", "--port", f"{port}", "--webui-port", f"{self._web}")]
        wait_for(lambda: self._state() is not None, "the master answers", START_S)
        self.workers = {f"worker-{n}": self.start_worker(f"worker-{n}") for n in range(workers)}
        wait_for(lambda: len(self.alive()) == workers, "all workers are there", START_S)

    def start_worker(self, name: str) -> ManagedProcess:
        options = ["--port", "0", "--webui-port", "0", "--cores", f"{self._cores}", "--memory", "4g"]
        worker = self._start(name, "worker.Worker", *options, "-d", f"{self._directory}/{name}", self.master)
        self._running.append(worker)
        return worker

    def alive(self) -> list[dict[str, Any]]:
        """The workers that the master counts on."""
        return [worker for worker in (self._state() or {}).get("workers", []) if worker["state"] == "ALIVE"]

    def waiting_or_running(self) -> dict[str, dict[str, Any]]:
        """Applications by name."""
        return {application["name"]: application for application in (self._state() or {}).get("activeapps", [])}

    def places(self, application: str) -> dict[str, list[int]]:
        """On which worker the executors of an application run, as processes."""
        identity = self.waiting_or_running()[application]["id"]
        found: dict[str, list[int]] = {}
        for name, worker in self.workers.items():
            for process in self._children(worker):
                with suppress(psutil.Error):  # it has just ended
                    line = process.cmdline()
                    if identity in line and any("CoarseGrainedExecutorBackend" in word for word in line):
                        found.setdefault(name, []).append(process.pid)
        return found

    def tasks(self, application: str) -> int:
        """How many tasks of an application run at this moment, as its executors' threads show."""
        jstack, running = f"{self._environ['JAVA_HOME']}/bin/jstack", 0
        for process in (pid for pids in self.places(application).values() for pid in pids):
            shown = subprocess.run([jstack, str(process)], capture_output=True, text=True)
            running += shown.stdout.count("org.apache.spark.executor.Executor$TaskRunner.run(")
        return running

    def kill(self, worker: str) -> None:
        """kill -9 of a worker and its executors, as when its machine loses power."""
        process = self.workers.pop(worker)
        for each in [*self._children(process), psutil.Process(process.identity.pid)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def stop(self) -> None:
        stop_all(self._running, STOP_S)

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def _start(self, name: str, daemon: str, *arguments: str) -> ManagedProcess:
        command = [f"{pyspark_jars().parent}/bin/spark-class", f"org.apache.spark.deploy.{daemon}", "--host", HOST]
        return ManagedProcess([*command, *arguments], self._environ, self._directory / f"{name}.log")

    def _state(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, json.JSONDecodeError):  # not up yet; its pages are up before /json/ is
            return None

    @staticmethod
    def _children(worker: ManagedProcess) -> list[psutil.Process]:
        try:
            return psutil.Process(worker.identity.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
