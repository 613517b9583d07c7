"""The router from Kafka to Kafka: latency at 200 and 1,000 messages a second, throughput against a pass-through."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
from deltalake import write_deltalake

from bench.figures import Figures
from bench.kafka_load import fill, measure_latency, output_rate
from jobs.stack.topics import admin_client, create_topics
from schemas.identity import CATCH_ALL, hash_of
from schemas.readiness import ready_file
from schemas.topics import DAY_MS, Topics

SHARDS = 4
EPOCH, FAR = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
READY_TIMEOUT_S = 120
WARM_S = 30.0


def write_routes(tables: Path, routes: int, shards: list[int]) -> list[str]:
    """A routes table in which `routes` keys are wanted by `shards`, known for ever; returns topics to publish to."""
    keys = [f"bench/{number}" for number in range(routes)]
    target = [{"shard": shard, "effective_from": EPOCH, "effective_until": FAR} for shard in shards]
    stamp = pa.timestamp("us", tz="UTC")
    struct = pa.struct([("shard", pa.int32()), ("effective_from", stamp), ("effective_until", stamp)])
    rows = pa.table(
        {
            "route_key": [CATCH_ALL, *keys],
            "bucket": pa.array([-1, *(hash_of(key) % 16 for key in keys)], pa.int32()),
            "targets": pa.array([[], *([target] * routes)], pa.list_(struct)),
            "as_of": pa.array([FAR, *([None] * routes)], stamp),
        }
    )
    write_deltalake(str(tables / "routes"), rows, mode="overwrite", partition_by=["bucket"])
    return [f"{key}/x" for key in keys[:1000]]


@contextmanager
def running(data: Path, bootstrap: str, prefix: str, *argv: str) -> Iterator[None]:
    """A query's process over `data`, from ready to stopped."""
    part = "bench"
    ready = ready_file(data, part)
    ready.unlink(missing_ok=True)
    environ = os.environ | {
        "WAYSTATION_DATA": str(data),
        "WAYSTATION_PART": part,
        "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
        "WAYSTATION_KAFKA__PREFIX": prefix,
    }
    with (data / "bench.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", *argv], env=environ, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{argv} did not start: {(data / 'bench.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class RouterBench:
    """Each measurement has fresh topics and checkpoints on one broker."""

    def __init__(self, bootstrap: str, figures: Figures) -> None:
        self._bootstrap = bootstrap
        self._figures = figures
        self._number = 0

    @contextmanager
    def _fresh(self, routes: int, shards: list[int]) -> Iterator[tuple[Path, Topics, list[str]]]:
        self._number += 1
        topics = Topics(f"bench{self._number}.")
        create_topics(admin_client(self._bootstrap, {}), topics.declared(2, SHARDS, DAY_MS))
        data = Path(mkdtemp(prefix="waystation-bench-"))
        try:
            yield data, topics, write_routes(data / "tables", routes, shards)
        finally:
            shutil.rmtree(data, ignore_errors=True)

    def latency(self, name: str, argv: tuple[str, ...], rate: float, seconds: float) -> None:
        """Records `<name>_p50_ms` and so on; two routes a message."""
        with (
            self._fresh(100, [1, 2]) as (data, topics, destinations),
            running(data, self._bootstrap, topics.prefix, *argv),
        ):
            where = (self._bootstrap, topics.ingress, topics.egress, destinations)
            measure_latency(*where, rate, WARM_S, 2)
            found = measure_latency(*where, rate, seconds, 2)
        self._figures.latencies(name, found.first_ms)

    def throughput(self, routes: int, records: int) -> None:
        """Records `routing_vs_passthrough_<routes>`: one route a message, the same number of records out."""
        rates = {}
        for kind in ("pass", "route"):
            with self._fresh(routes, [1]) as (data, topics, destinations):
                fill(self._bootstrap, topics.ingress, destinations, records)
                with running(data, self._bootstrap, topics.prefix, "bench.queries", kind):
                    rates[kind] = output_rate(self._bootstrap, topics.egress, records, 180)
        self._figures.add(f"routing_records_per_s_{routes}", round(rates["route"]))
        self._figures.add(f"passthrough_records_per_s_{routes}", round(rates["pass"]))
        self._figures.add(f"routing_vs_passthrough_{routes}", round(rates["route"] / rates["pass"], 3))
