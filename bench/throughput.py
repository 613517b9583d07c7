"""Throughput of the routing query against two pass-throughs, all in Real-Time Mode, from Kafka to Kafka.

One is bare: the query that anyone would write, with the settings that Spark and Kafka come with. The other has the
router's producer: what it does more than routing is what routing itself costs. The three take turns, in one JVM, at the
same records; each record gives one, in the partition of the same number. What is compared is what each does once it is
warm: a JVM's first million records say more of its compiler.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import harmonic_mean

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from bench.figures import Figures
from bench.kafka_load import fill, write_routes
from bench.processes import fresh_directory, spark_session
from jobs.router.__main__ import session_settings
from jobs.stack.topics import admin_client, create_topics, topic_ends
from pipelines.routing.instructions import RoutingPlan, route
from pipelines.routing.routes_in_memory import RoutesInMemory
from pipelines.sinks import produce_in_real_time
from pipelines.sources import Kafka, realtime_stream
from pipelines.streams import StreamId
from schemas.settings import process_settings
from schemas.topics import DAY_MS, Topic, Topics

PARTITIONS = 2
WARM_TURNS, TURNS = 2, 3
BATCH_S = 10.0
SAMPLE_S = 0.1
TIMEOUT_S = 300.0
STARTED = 0.1
"""Share of the records that are not counted: the query is only starting."""


Start = Callable[[str, str], StreamingQuery]
"""Starts a query to a topic, with its checkpoint at a path."""


def passed_through(messages: DataFrame, egress: str) -> DataFrame:
    """The least a query can do between two topics: the same record, into the partition of the same number."""
    return messages.select(F.lit(egress).alias("topic"), "key", "value", "headers", "partition")


class ThroughputBench:
    """`records` are put on `ingress` once, and drained by every query anew."""

    def __init__(self, bootstrap: str, figures: Figures, records: int) -> None:
        self._kafka = Kafka(bootstrap)
        self._admin = admin_client(bootstrap, {})
        self._figures = figures
        self._records = records
        self._turns = 0
        self._data: Path
        self._topics = Topics("throughput.")

    def run(self, routes: tuple[int, ...]) -> None:
        """Records `routing_vs_passthrough_<n>` and `routing_vs_tuned_passthrough_<n>` for each number of routes."""
        create_topics(self._admin, self._topics.declared(PARTITIONS, PARTITIONS, DAY_MS))
        with fresh_directory() as self._data:
            settings = process_settings(os.environ | {"WAYSTATION_DATA": str(self._data)})
            destinations = [write_routes(self._data / str(n), n, lambda number: [number % PARTITIONS]) for n in routes]
            fill(self._kafka.bootstrap, self._topics.ingress, destinations[0], self._records)
            with spark_session(f"local[{PARTITIONS + 4}]", session_settings(settings)) as spark:
                spark.sparkContext.setLogLevel("OFF")  # of queries stopped in mid-batch, which these all are
                for _ in range(WARM_TURNS):
                    self._turn(spark, routes[0])
                for n in routes:
                    self._measure(spark, n)

    def _measure(self, spark: SparkSession, routes: int) -> None:
        turns = [self._turn(spark, routes) for _ in range(TURNS)]
        rates = {name: harmonic_mean(turn[name] for turn in turns) for name in turns[0]}
        for name, rate in rates.items():
            self._figures.add(f"{name}_records_per_s_{routes}", round(rate))
        for name in ("passthrough", "tuned_passthrough"):
            self._figures.add(f"routing_vs_{name}_{routes}", round(rates["routing"] / rates[name], 3))

    def _turn(self, spark: SparkSession, routes: int) -> dict[str, float]:
        """Records a second of each query."""
        held = RoutesInMemory(spark, str(self._data / str(routes)), StreamId("bench"))
        held.refresh()
        messages = realtime_stream(spark, self._kafka, self._topics.ingress)

        def bare(topic: str, checkpoint: str) -> StreamingQuery:
            return self._start_bare(passed_through(messages, topic), checkpoint)

        def tuned(topic: str, checkpoint: str) -> StreamingQuery:
            return self._start(passed_through(messages, topic), checkpoint)

        def routing(topic: str, checkpoint: str) -> StreamingQuery:
            plan = RoutingPlan(topic, "unused", PARTITIONS, PARTITIONS, 1.0, "bench")
            return self._start(route(messages, held.read(), plan), checkpoint)

        queries = {"passthrough": bare, "tuned_passthrough": tuned, "routing": routing}
        return {name: self._drain(start) for name, start in queries.items()}

    def _start(self, records: DataFrame, checkpoint: str) -> StreamingQuery:
        return produce_in_real_time(records, StreamId("bench"), checkpoint, self._kafka, BATCH_S)

    def _start_bare(self, records: DataFrame, checkpoint: str) -> StreamingQuery:
        writer = (
            records.writeStream.format("kafka")
            .outputMode("update")
            .options(**self._kafka.options())
            .option("includeHeaders", "true")
            .option("checkpointLocation", checkpoint)
        )
        # pyspark's stubs do not know Real-Time Mode.
        query: StreamingQuery = writer.trigger(realTime=f"{BATCH_S:g} seconds").start()  # type: ignore[call-overload]
        return query

    def _drain(self, start: Start) -> float:
        self._turns += 1
        topic = f"out-{self._turns:03}"
        create_topics(self._admin, [Topic(topic, PARTITIONS, {})])
        query = start(topic, str(self._data / "checkpoints" / topic))
        try:
            return _output_rate(self._admin, topic, self._records)
        finally:
            query.stop()
            _delete(self._admin, topic)


def _output_rate(admin: AdminClient, topic: str, count: int) -> float:
    """Records a second from the end of the start to the last of `count`, by the ends of the topic's partitions."""
    first: tuple[float, int] | None = None
    deadline = time.monotonic() + TIMEOUT_S
    while (now := time.monotonic()) < deadline:
        (end,) = topic_ends(admin, topic)
        there = sum(end.end_offsets)
        if first is None and there >= STARTED * count:
            first = now, there
        elif first is not None and there >= count:
            return (there - first[1]) / (now - first[0])
        time.sleep(SAMPLE_S)
    raise TimeoutError(f"{topic}: fewer than {count} records in {TIMEOUT_S:g} s")


def _delete(admin: AdminClient, topic: str) -> None:
    for future in admin.delete_topics([topic]).values():
        future.result()
