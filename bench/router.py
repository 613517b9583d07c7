"""Latency of the router from Kafka to Kafka, at a rate; each measurement in processes of its own.

`python -m bench.router` is what the routers are compared with: the routing transform as a plain micro-batch query.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event

from bench.figures import Figures
from bench.kafka_load import measure_latency, ticking, write_routes
from bench.processes import PART, fresh_directory, running
from bench.subscriber import pauses_ms
from jobs.router.__main__ import session_settings
from jobs.runtime.spark_session import build_session
from jobs.stack.topics import admin_client, create_topics
from pipelines.routing.instructions import RoutingPlan, route
from pipelines.routing.routes_in_memory import RoutesInMemory
from pipelines.sources import Kafka, realtime_stream
from pipelines.streams import StreamId
from schemas.readiness import announce_ready
from schemas.settings import Settings, process_settings
from schemas.topics import DAY_MS, Topics

SHARDS = 4
WARM_S = 30.0
PAUSE_RATE = 200.0
BATCH_S = 10.0
LEVEL_S = 2 * BATCH_S
"""What a router that has become ready is given until it is level and its pauses are where they belong."""
TAKEN_OVER_S = 2 * BATCH_S
"""Until no batch has the routes of before."""
ROUTES = 100


class RouterBench:
    """Each measurement has fresh topics and checkpoints on one broker."""

    def __init__(self, bootstrap: str, figures: Figures) -> None:
        self._bootstrap = bootstrap
        self._figures = figures
        self._number = 0

    @contextmanager
    def _running(self, *argv: str) -> Iterator[tuple[Path, tuple[str, str, str, list[str]]]]:
        """The router of `argv`: its tables, and where to measure it."""
        self._number += 1
        topics = Topics(f"bench{self._number}.")
        create_topics(admin_client(self._bootstrap, {}), topics.declared(2, SHARDS, DAY_MS))
        with fresh_directory() as data:
            destinations = write_routes(data / "tables", ROUTES, _wanted_by)
            with running(data, self._bootstrap, topics.prefix, *argv):
                yield data / "tables", (self._bootstrap, topics.ingress, topics.egress, destinations)

    def latency(self, name: str, argv: tuple[str, ...], rate: float, seconds: float) -> None:
        """Records `<name>_p50_ms` and so on; two routes a message."""
        with self._running(*argv) as (_, where):
            measure_latency(*where, rate, WARM_S, 2)
            found = measure_latency(*where, rate, seconds, 2)
        self._figures.latencies(name, found.first_ms)

    def pauses(self, routes: tuple[int, int], rounds: int, batches: int) -> None:
        """Records `router_pause_ms_<routes>`, how long a router of its own gives nothing between two batches, and the
        second by the first as `router_pause_ratio_200k`; the medians of all batches. One process has both tables in
        turns, `batches` each time, or the ratio would be that of two compilers and two minutes of the machine. The
        table gets a tick as often as the ledger gives it one: routers take it over each time."""
        every_s = process_settings({}).ledger.routes_trigger_s
        found: dict[int, list[float]] = {count: [] for count in routes}
        with self._running("jobs.router", "--role", "active") as (tables, where):
            measure_latency(*where, PAUSE_RATE, WARM_S, 2)
            for count in routes * rounds:
                write_routes(tables, count, _wanted_by)
                with ticking(tables, every_s):
                    measure_latency(*where, PAUSE_RATE, TAKEN_OVER_S, 2)
                    seen = measure_latency(*where, PAUSE_RATE, batches * BATCH_S, 2)
                found[count].extend(pauses_ms(seen.arrivals_s, 1 / PAUSE_RATE, BATCH_S))
        few, many = (median(found[count]) for count in routes)
        for count, pause in zip(routes, (few, many), strict=True):
            self._figures.add(f"router_pause_ms_{count}", round(pause, 1))
        self._figures.add("router_pause_ratio_200k", round(many / few, 2))


def _wanted_by(_route: int) -> list[int]:
    return [1, 2]


def run_microbatches(settings: Settings, stopped: Event) -> None:
    topics, kafka = Topics(settings.kafka.prefix), Kafka(settings.kafka.bootstrap)
    spark = build_session("bench", "local[8]", session_settings(settings))
    plan = RoutingPlan(topics.egress, topics.progress, 2, settings.kafka.shards, settings.router.route_lead_s, "bench")
    routes = RoutesInMemory(spark, settings.tables, StreamId("bench-microbatch"))
    routes.refresh()
    query = (
        route(realtime_stream(spark, kafka, topics.ingress), routes.read(), plan)
        .writeStream.format("kafka")
        .outputMode("append")
        .options(**kafka.options())
        .option("kafka.linger.ms", "0")
        .option("checkpointLocation", f"{settings.data}/bench-microbatch")
        .trigger(processingTime="0 seconds")
        .start()
    )
    announce_ready(settings.data, PART, {})
    while not stopped.wait(0.5) and query.isActive:
        pass
    query.stop()
    spark.stop()


if __name__ == "__main__":
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    run_microbatches(process_settings(os.environ), ended)
