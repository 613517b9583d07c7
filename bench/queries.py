"""Queries to compare with, each a process of its own (`python -m bench.queries KIND`): the routing transform as a plain
micro-batch, and a bare pass-through from `ingress` to `egress` in Real-Time Mode."""

import os
import signal
import sys
from threading import Event

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.router import session_settings
from jobs.spark import build_session
from pipelines.routing import RoutingPlan, route
from pipelines.sinks import produce_in_real_time
from pipelines.sources import Kafka, read_table, realtime_stream
from pipelines.streams import StreamId
from schemas.readiness import announce_ready
from schemas.settings import Settings, process_settings
from schemas.tables import ROUTES
from schemas.topics import Topics


def passed_through(messages: DataFrame, egress: str) -> DataFrame:
    """The least a query can do between two topics: the same record, into the partition of the same number."""
    return messages.select(F.lit(egress).alias("topic"), "key", "value", "headers", "partition")


def run(kind: str, settings: Settings, stopped: Event) -> None:
    topics, kafka = Topics(settings.kafka.prefix), Kafka(settings.kafka.bootstrap)
    spark = build_session("bench", "local[8]", session_settings(settings))
    messages = realtime_stream(spark, kafka, topics.ingress)
    checkpoint = f"{settings.data}/bench-{kind}"
    plan = RoutingPlan(topics.egress, topics.progress, 2, settings.kafka.shards, settings.router.route_lead_s, kind)
    if kind == "pass":
        records = passed_through(messages, topics.egress)
    else:
        records = route(messages, read_table(spark, settings.tables, ROUTES), plan)
    if kind == "microbatch":
        query = (
            records.writeStream.format("kafka")
            .outputMode("append")
            .options(**kafka.options())
            .option("kafka.linger.ms", "0")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
    else:
        query = produce_in_real_time(records, StreamId(kind), checkpoint, kafka, settings.router.batch_s)
    announce_ready(settings.data, "bench", {})
    while not stopped.wait(0.5) and query.isActive:
        pass
    query.stop()
    spark.stop()


if __name__ == "__main__":
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    run(sys.argv[1], process_settings(os.environ), ended)
