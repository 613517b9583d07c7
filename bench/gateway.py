"""One gateway process on a broker of its own: what a message costs it, in and out (no router, no ledger)."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figures
from bench.gateway_load import command
from bench.load import Load
from bench.processes import fresh_directory
from harness.processes import Program
from jobs.stack.topics import admin_client, create_topics, declared_topics
from schemas.settings import process_settings

LEAD_S = 8.0
"""The least that settings allow with the other times below."""
WARM_S = 10.0
"""Load before what is measured. A broker that has just begun compiles its fetch path first, hands out little at a time,
and a gateway that gets little at a time pays more for each."""
LOAD_TIMEOUT_S = 300


def environment_of(data: Path, bootstrap: str) -> dict[str, str]:
    """What the gateway over `data` runs with: the defaults, but for the times of routes, and free ports."""
    return {
        **os.environ,
        "WAYSTATION_DATA": str(data),
        "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
        "WAYSTATION_KAFKA__PREFIX": f"{data.name.lower()}.",
        "WAYSTATION_ROUTER__BATCH_S": "5.0",
        "WAYSTATION_LEDGER__ROUTES_TRIGGER_S": "0.5",
        "WAYSTATION_ROUTER__ROUTE_LEAD_S": str(LEAD_S),
        **{f"WAYSTATION_GATEWAY__{name}_PORT": "0" for name in ("MQTT", "WEBSOCKET", "HTTP", "METRICS")},
    }


class GatewayBench:
    """Measures over one broker."""

    def __init__(self, bootstrap: str, figures: Figures, seconds: float) -> None:
        self._bootstrap = bootstrap
        self._figures = figures
        self._seconds = seconds

    @contextmanager
    def _gateway(self) -> Iterator[Load]:
        """A gateway over fresh topics, routes in effect after LEAD_S: load on it, to be completed."""
        with fresh_directory() as data:
            environment = environment_of(data, self._bootstrap)
            settings = process_settings(environment)
            kafka = settings.kafka
            create_topics(admin_client(self._bootstrap, {}), declared_topics(settings))
            profiler = os.environ.get("WAYSTATION_BENCH_PROFILE")
            argv = ["cProfile", "-o", profiler, "-m", "gateway"] if profiler else ["gateway"]
            with Program(data, "gateway", *argv, environ=environment).running() as gateway:
                yield Load(
                    port=gateway.port_of("mqtt"),
                    pid=gateway.pid,
                    seconds=self._seconds,
                    bootstrap=self._bootstrap,
                    prefix=kafka.prefix,
                    shards=kafka.shards,
                    lead_s=LEAD_S,
                )

    def throughput(self, direction: str, connections: int, window: int, name: str) -> None:
        """Records `<name>_per_cpu_s`, the median of the seconds measured, `…_best_per_cpu_s`, that of the best one,
        `…_per_s`, `…_cores` of the gateway's process, and `…_vs_bare` if the bare server was measured."""
        with self._gateway() as load:
            found = run_load(direction, load._replace(connections=connections, window=window, warm_s=WARM_S))
        for what, digits in (("per_cpu_s", None), ("best_per_cpu_s", None), ("per_s", None), ("cores", 2)):
            self._figures.add(f"{name}_{what}", round(found[what], digits))
        bare = self._figures.values.get("bare_server_per_cpu_s")
        if bare:
            self._figures.add(f"{name}_vs_bare", round(found["per_cpu_s"] / bare, 3))

    def ceiling(self) -> None:
        """Records `load_ceiling_per_s`: what the load generator does against a bare server, which only answers; and
        `bare_server_per_cpu_s`: how often that answers in a CPU second, which tells how fast the machine is just now.
        """
        found = run_load("ceiling", Load(connections=50, window=20, seconds=self._seconds / 2))
        self._figures.add("load_ceiling_per_s", round(found["per_s"]))
        self._figures.add("bare_server_per_cpu_s", round(found["per_cpu_s"]))

    def quiet(self) -> None:
        """Records `quiet_beside_flood_ratio`: p99 of a quiet client's PUBACK beside a flooding one, by that alone."""
        with self._gateway() as load:
            found = run_load("quiet", load._replace(seconds=self._seconds * 2))
        for name, value in found.items():
            self._figures.add(f"quiet_{name}", round(value, 2))
        self._figures.add("quiet_beside_flood_ratio", round(found["flood_p99_ms"] / found["alone_p99_ms"], 2))

    def connect(self, connections: int, rate: float) -> None:
        """Records `connect_1000_p99_ms` and `idle_connection_kb`."""
        with self._gateway() as load:
            found = run_load("connect", load._replace(connections=connections, rate=rate))
        self._figures.add("connect_1000_per_s", round(found["per_s"]))
        for name in ("connect_1000_p50_ms", "connect_1000_p99_ms", "idle_connection_kb"):
            self._figures.add(name, round(found[name.removeprefix("connect_1000_")], 1))

    def share_latency(self, members: int, rate: float) -> None:
        """Records `share_group_p50_ms`, `share_group_p99_ms`, and with `qos2_` before p50 and p99 those at QoS 2."""
        with self._gateway() as load:
            found = run_load("share_latency", load._replace(connections=members, rate=rate))
        for name, value in found.items():
            self._figures.add(f"share_group_{name}", round(value, 2))


def run_load(what: str, load: Load) -> dict[str, float]:
    """Runs a load process; its answer."""
    done = subprocess.run(command(what, load), capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"the load {what} failed: {done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
