"""What is measured, in processes of its own: a broker, an application, Spark."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from harness.processes import Broker, Program
from jobs.runtime.spark_session import build_session
from jobs.stack.java import find_java

PART = "bench"
READY_TIMEOUT_S = 300
JVM_END_S = 60


@contextmanager
def fresh_directory() -> Iterator[Path]:
    with TemporaryDirectory(prefix="waystation-bench-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@contextmanager
def running_broker() -> Iterator[str]:
    """A broker on free ports; yields its bootstrap address."""
    with fresh_directory() as data:
        broker = Broker(data, find_java(os.environ).home, short_lived=False).start()
        try:
            yield broker.bootstrap
        finally:
            broker.stop()


@contextmanager
def running(
    data: Path, bootstrap: str, prefix: str, *argv: str, settings: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """The module and arguments of `argv` over `data`, with `settings` as environment variables, as the part PART."""
    environ = os.environ | {
        "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
        "WAYSTATION_KAFKA__PREFIX": prefix,
        "WAYSTATION_ROUTER__METRICS_PORT": "0",
        "WAYSTATION_LEDGER__METRICS_PORT": "0",
        # One role is one query here: its pauses are what is measured.
        "WAYSTATION_ROUTER__STANDBY_QUERY": "false",
        **(settings or {}),
    }
    with Program(data, PART, *argv, environ=environ).running(READY_TIMEOUT_S) as program:
        yield program


@contextmanager
def spark_session(master: str, extra: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in a JVM of its own. Both end, because pyspark would use the JVM again, and heap and compiler are
    settled when a JVM starts. Raises subprocess.TimeoutExpired if the JVM does not end."""
    spark = build_session("bench", master, dict(extra))
    try:
        yield spark
    finally:
        spark.stop()
        context: Any = SparkContext
        gateway = context._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()  # tells pyspark's JVM to end
        gateway.proc.wait(JVM_END_S)
        context._gateway = context._jvm = None


def family(process: psutil.Process) -> list[psutil.Process]:
    """The process and all it has started."""
    return [process, *process.children(recursive=True)]


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of the process, and of those it has started and that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
