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
from bench.mqtt_load import LoadClient, measure_path
from jobs.stack.state import running_state
from tests.unit.access.keys import Authority

RATE = 200.0


class StackBench:
    """A stack over `data`, started by `waystation up` as a user does, with a listener for TLS beside the plain one."""

    def __init__(self, data: Path, figures: Figures, overrides: Mapping[str, str] | None = None) -> None:
        self.data = data
        self._figures = figures
        authority = Authority(data)
        ours = authority.sign("localhost")
        self._trust = ssl.create_default_context(cafile=str(authority.file))
        tls = {"CERTIFICATE": str(ours.certificate), "KEY": str(ours.key), "MQTTS_PORT": "0"}
        self._environment = os.environ | {f"WAYSTATION_GATEWAY__TLS__{name}": value for name, value in tls.items()}
        self._environment |= overrides or {}

    def up(self) -> float:
        """How long it takes until the first message is delivered, seconds."""
        began = time.monotonic()
        self.waystation("up", "--detach", "--free-ports")
        asyncio.run(self._first_message())
        return time.monotonic() - began

    def down(self) -> None:
        self.waystation("down")

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
        measured = measure_path(port, qos, RATE, warm_s, seconds, f"bench/path/{name}", trust)
        with first_in_line():
            latencies_ms = asyncio.run(measured)
        self._figures.latencies(f"path_{name}", latencies_ms)

    def warm(self, seconds: float) -> None:
        """The same load without a figure: in its first minutes the JVMs compile, which takes all of two cores."""
        asyncio.run(measure_path(self.port(), 1, RATE, 0, seconds, "bench/path/warm"))

    async def _first_message(self) -> None:
        port = self.port()
        subscriber = await LoadClient.connect(port, "bench-first-sub")
        publisher = await LoadClient.connect(port, "bench-first-pub")
        publisher.publish(b"@bench-first-sub", 1)
        while not subscriber.latencies_ms:
            await asyncio.sleep(0.01)
        subscriber.close()
        publisher.close()

    def port(self, listener: str = "mqtt") -> int:
        return int(running_state(self.data).listeners[listener].rpartition(":")[2])

    def _processes(self) -> list[psutil.Process]:
        roots = [psutil.Process(process.pid) for process in running_state(self.data).processes]
        return [*roots, *(child for root in roots for child in root.children(recursive=True))]

    def waystation(self, *arguments: str, own_session: bool = False) -> None:
        """Runs the command. Linux shares the processors out among sessions first: in the session of the load that is
        measured, it would take its time from that."""
        command = [sys.executable, "-m", "jobs.cli.main", "--data", str(self.data), *arguments]
        subprocess.run(command, check=True, env=self._environment, start_new_session=own_session)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
