"""The whole stack: start to first message, idle cost, and client-to-client latency."""

import asyncio
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from bench.figures import Figures
from bench.first_in_line import first_in_line
from bench.mqtt_load import LoadClient, publish_while
from harness.keys import Authority
from jobs.stack.process import wait_until
from jobs.stack.state import running_state, state_if_running

RATE = 200.0
START_S = 300.0


class StackBench:
    """A stack in `data`, started by `waystation up` as a user does, with a listener for TLS beside the plain one.

    `up_s`: how long that took until the first message was delivered, seconds.
    """

    def __init__(self, data: Path, figures: Figures, overrides: Mapping[str, str] | None = None) -> None:
        self.data = data
        self._figures = figures
        authority = Authority(data)
        ours = authority.sign("localhost")
        self._trust = ssl.create_default_context(cafile=str(authority.file))
        tls = {"CERTIFICATE": str(ours.certificate), "KEY": str(ours.key), "MQTTS_PORT": "0"}
        self._environment = os.environ | {f"WAYSTATION_GATEWAY__TLS__{name}": value for name, value in tls.items()}
        self._environment |= overrides or {}
        self._command = [sys.executable, "-m", "jobs.cli.main", "--data", str(data)]
        self._up: subprocess.Popen[bytes] | None = None
        self.up_s = 0.0

    def up(self) -> None:
        """In our session: Linux shares the processors out among sessions first, and only then looks at how far a
        process gives way. Raises RuntimeError if it does not come up."""
        began = time.monotonic()
        command = [*self._command, "up", "--free-ports"]
        self._up = up = subprocess.Popen(command, env=self._environment, process_group=0)
        wait_until(lambda: up.poll() is not None or self._is_ready(), START_S)
        if not self._is_ready():
            raise RuntimeError("the stack does not come up")
        asyncio.run(self._first_message())
        self.up_s = time.monotonic() - began

    def down(self) -> None:
        if self._up is not None:
            self._up.terminate()
            self._up.wait()

    def idle(self, settle_s: float, seconds: float) -> None:
        """Records `idle_cores` and `idle_rss_mb`: the stack's own processes with nothing to do."""
        time.sleep(settle_s)
        processes = self._processes()
        before = sum(_cpu_s(process) for process in processes)
        time.sleep(seconds)
        used = sum(_cpu_s(process) for process in processes) - before
        self._figures.add("idle_cores", round(used / seconds, 3))
        self._figures.add("idle_rss_mb", round(sum(p.memory_info().rss for p in processes) / 2**20))

    def path(self, name: str, qos: int, seconds: float, warm_s: float, with_tls: bool = False) -> None:
        """Records `path_<name>_…`: one publisher, one subscriber, 256 bytes, 200 messages a second, once the route of
        the topic is in effect (`warm_s` is longer than `route_lead_s`)."""
        port, trust = (self.port("mqtts"), self._trust) if with_tls else (self.port(), None)
        warm, total = int(RATE * warm_s), int(RATE * (warm_s + seconds))
        with first_in_line():
            load = publish_while(lambda sent: sent < total, port, qos, RATE, f"bench/path/{name}", trust)
            _, latencies_ms = asyncio.run(load)
        self._figures.latencies(f"path_{name}", latencies_ms[warm:])

    def warm(self, seconds: float) -> None:
        """The same load without a figure: in its first minutes the JVMs compile, which takes all of two cores."""
        total = int(RATE * seconds)
        asyncio.run(publish_while(lambda sent: sent < total, self.port(), 1, RATE, "bench/path/warm"))

    async def _first_message(self) -> None:
        port = self.port()
        subscriber = await LoadClient.connect(port, "bench-first-sub")
        publisher = await LoadClient.connect(port, "bench-first-pub")
        publisher.publish("@bench-first-sub", 1)
        while not subscriber.latencies_ms:
            await asyncio.sleep(0.01)
        await subscriber.mqtt.disconnect()
        await publisher.mqtt.disconnect()

    def port(self, listener: str = "mqtt") -> int:
        return int(running_state(self.data).listeners[listener].rpartition(":")[2])

    def _processes(self) -> list[psutil.Process]:
        roots = [psutil.Process(process.pid) for process in running_state(self.data).processes]
        return [*roots, *(child for root in roots for child in root.children(recursive=True))]

    def waystation(self, *arguments: str) -> None:
        """Runs the command in a session of its own, as from another terminal."""
        subprocess.run([*self._command, *arguments], check=True, env=self._environment, start_new_session=True)

    def _is_ready(self) -> bool:
        state = state_if_running(self.data)
        return state is not None and state.ready


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
