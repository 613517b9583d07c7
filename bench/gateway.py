"""One gateway process on a broker of its own: what a message costs it, in and out (no router, no ledger)."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from bench.figures import Figures
from harness.processes import Program
from jobs.stack.topics import admin_client, create_topics, declared_topics
from schemas.settings import Settings, process_settings

START_S = 60.0
LEAD_S = 8.0
"""The least that settings allow with the other times below."""
WARM_S = 10.0
"""Load before what is measured. A broker that has just begun compiles its fetch path first, hands out little at a time,
and a gateway that gets little at a time pays more for each."""


class RunningGateway(NamedTuple):
    pid: int
    settings: Settings
    listeners: dict[str, str]

    def port(self, bearer: str) -> int:
        return int(self.listeners[bearer].rpartition(":")[2])


def environment_of(data: Path, bootstrap: str, changes: Mapping[str, str]) -> dict[str, str]:
    """What the gateway over `data` runs with: the defaults, but for the times of routes, free ports and `changes`."""
    return {
        **os.environ,
        "WAYSTATION_DATA": str(data),
        "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
        "WAYSTATION_KAFKA__PREFIX": f"bench-{data.name[-6:].lower()}.",
        "WAYSTATION_ROUTER__BATCH_S": "5.0",
        "WAYSTATION_LEDGER__ROUTES_TRIGGER_S": "0.5",
        "WAYSTATION_ROUTER__ROUTE_LEAD_S": str(LEAD_S),
        "WAYSTATION_GATEWAY__MQTT_PORT": "0",
        "WAYSTATION_GATEWAY__WEBSOCKET_PORT": "0",
        "WAYSTATION_GATEWAY__HTTP_PORT": "0",
        "WAYSTATION_GATEWAY__METRICS_PORT": "0",
        **changes,
    }


@contextmanager
def running_gateway(bootstrap: str, changes: Mapping[str, str]) -> Iterator[RunningGateway]:
    """A gateway over fresh topics, routes in effect after LEAD_S; `changes` are further environment variables."""
    data = Path(mkdtemp(prefix="waystation-bench-gateway-"))
    environment = environment_of(data, bootstrap, changes)
    settings = process_settings(environment)
    create_topics(admin_client(bootstrap, {}), declared_topics(settings.kafka))
    profiler = os.environ.get("WAYSTATION_BENCH_PROFILE")
    argv = ["cProfile", "-o", profiler, "-m", "gateway"] if profiler else ["gateway"]
    try:
        with Program(data, "gateway", *argv, environ=environment).running(START_S) as gateway:
            yield RunningGateway(gateway.pid, settings, gateway.addresses)
    finally:
        shutil.rmtree(data, ignore_errors=True)


class GatewayBench:
    """Measures over one broker."""

    def __init__(self, bootstrap: str, figures: Figures, seconds: float) -> None:
        self._bootstrap = bootstrap
        self._figures = figures
        self._seconds = seconds

    def throughput(self, direction: str, connections: int, window: int, name: str) -> None:
        """Records `<name>_per_cpu_s`, the median of the seconds measured, `…_best_per_cpu_s`, that of the best one,
        `…_per_s`, `…_cores` of the gateway's process, and `…_vs_bare` if the bare server was measured."""
        with running_gateway(self._bootstrap, {}) as gateway:
            settings = gateway.settings
            arguments = {
                "port": gateway.port("mqtt"),
                "pid": gateway.pid,
                "connections": connections,
                "window": window,
                "shards": settings.kafka.shards,
                "warm-s": WARM_S,
                "seconds": self._seconds,
                "lead-s": LEAD_S,
                "bootstrap": self._bootstrap,
                "prefix": settings.kafka.prefix,
            }
            found = run_load("bench.gateway_load", direction, arguments)
        self._figures.add(f"{name}_per_cpu_s", round(found["per_cpu_s"]))
        self._figures.add(f"{name}_best_per_cpu_s", round(found["best_per_cpu_s"]))
        self._figures.add(f"{name}_per_s", round(found["per_s"]))
        self._figures.add(f"{name}_cores", round(found["cores"], 2))
        bare = self._figures.values.get("bare_server_per_cpu_s")
        if bare:
            self._figures.add(f"{name}_vs_bare", round(found["per_cpu_s"] / bare, 3))

    def ceiling(self) -> None:
        """Records `load_ceiling_per_s`: what the load generator does against a bare server, which only answers; and
        `bare_server_per_cpu_s`: how often that answers in a CPU second, which tells how fast the machine is just now.
        """
        arguments = {"connections": 50, "window": 20, "seconds": self._seconds / 2}
        found = run_load("bench.gateway_load", "ceiling", arguments)
        self._figures.add("load_ceiling_per_s", round(found["per_s"]))
        self._figures.add("bare_server_per_cpu_s", round(found["per_cpu_s"]))

    def quiet(self) -> None:
        """Records `quiet_beside_flood_ratio`: p99 of a quiet client's PUBACK beside a flooding one, by that alone."""
        with running_gateway(self._bootstrap, {}) as gateway:
            arguments = {"port": gateway.port("mqtt"), "seconds": self._seconds * 2}
            found = run_load("bench.gateway_load", "quiet", arguments)
        for name, value in found.items():
            self._figures.add(f"quiet_{name}", round(value, 2))
        self._figures.add("quiet_beside_flood_ratio", round(found["flood_p99_ms"] / found["alone_p99_ms"], 2))

    def connect(self, connections: int, rate: float) -> None:
        """Records `connect_1000_p99_ms` and `idle_connection_kb`."""
        with running_gateway(self._bootstrap, {}) as gateway:
            arguments = {"port": gateway.port("mqtt"), "pid": gateway.pid, "connections": connections, "rate": rate}
            found = run_load("bench.gateway_load", "connect", arguments)
        self._figures.add("connect_1000_per_s", round(found["per_s"]))
        self._figures.add("connect_1000_p50_ms", round(found["p50_ms"], 1))
        self._figures.add("connect_1000_p99_ms", round(found["p99_ms"], 1))
        self._figures.add("idle_connection_kb", round(found["idle_kb"], 1))


def run_load(module: str, what: str, arguments: Mapping[str, object]) -> dict[str, float]:
    """Runs a load process; its answer."""
    argv = [sys.executable, "-m", module, what]
    argv += [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{module} {what} failed: {done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
