"""The routing transform as a plain micro-batch query, a process of its own (`python -m bench.microbatch`), to compare
the routers with."""

import os
import signal
from threading import Event

from jobs.router.__main__ import session_settings
from jobs.runtime.spark_session import build_session
from pipelines.routing.instructions import RoutingPlan, route
from pipelines.routing.routes_in_memory import RoutesInMemory
from pipelines.sources import Kafka, realtime_stream
from pipelines.streams import StreamId
from schemas.readiness import announce_ready
from schemas.settings import Settings, process_settings
from schemas.topics import Topics


def run(settings: Settings, stopped: Event) -> None:
    topics, kafka = Topics(settings.kafka.prefix), Kafka(settings.kafka.bootstrap)
    spark = build_session("bench", "local[8]", session_settings(settings))
    plan = RoutingPlan(topics.egress, topics.progress, 2, settings.kafka.shards, settings.router.route_lead_s, "bench")
    routes = RoutesInMemory(spark, settings.tables, StreamId("bench-microbatch"))
    routes.refresh()
    messages = realtime_stream(spark, kafka, topics.ingress)
    query = (
        route(messages, routes.read(), plan)
        .writeStream.format("kafka")
        .outputMode("append")
        .options(**kafka.options())
        .option("kafka.linger.ms", "0")
        .option("checkpointLocation", f"{settings.data}/bench-microbatch")
        .trigger(processingTime="0 seconds")
        .start()
    )
    announce_ready(settings.data, "bench", {})
    while not stopped.wait(0.5) and query.isActive:
        pass
    query.stop()
    spark.stop()


if __name__ == "__main__":
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    run(process_settings(os.environ), ended)
