"""The ledger application: all micro-batch queries in one Spark session (`python -m jobs.ledger`).

It folds routes, writes messages, instructions, outcomes, completions, presence and quarantine to their Delta tables,
computes completions, and merges presence. A query that fails is restarted after a delay that doubles up to a minute;
the others go on. A `tick` on `routes` marks, while nobody subscribes, up to when the routes table is complete, and one
on `presence` how long a gateway has been silent. SIGTERM stops everything cleanly: an unfinished batch is repeated at
the next start, with the same rows.
"""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from threading import Event, Thread

import structlog
from confluent_kafka import KafkaException, Producer
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.ledger.bounded_reading import BoundedReading
from jobs.ledger.journey_requests import JourneyRequests
from jobs.ledger.queries import Start, queries, trigger_s
from jobs.observe.feeds import FeedMetrics
from jobs.observe.observer import Observer
from jobs.observe.progress import StatusListener, first_line
from jobs.observe.routing import RoutesMetrics
from jobs.observe.server import ListenAddress
from jobs.runtime.application import hold_checkpoints, run_application
from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
from jobs.runtime.storage import storage_settings
from pipelines import sinks
from pipelines.feeds.comparison import FeedComparison
from pipelines.ledger.batch_limiter import BatchLimiter
from pipelines.storage.table_files import READ_ERRORS
from schemas.errors import WaystationError
from schemas.events import PresenceEvent, RouteEvent, encode
from schemas.readiness import announce_ready
from schemas.settings import Settings
from schemas.topics import Topics

PART = "ledger"
LONGEST_PAUSE_S = 60.0
THREADS = 4
"""Tasks at a time, shared by all queries: the small jobs of one must not wait for the long ones of another."""
LONGEST_FIRST_BATCH_S = 15.0
"""The next query starts after this time even if the previous one has failed or not finished its first batch. The query
of the routes is waited for: without routes, messages go to every shard."""

STOP_SHARE = 0.5
"""Share of the application's stop timeout that it waits for its queries."""

POOLS = {"routes": "routes", "presence_state": "presence", "message_presence_state": "presence"}
"""The queries whose results are awaited; all others write history."""

START_ERRORS = (PySparkException, Py4JJavaError, WaystationError, *READ_ERRORS)
"""The exceptions of a start: Spark's, ours, and those of reading tables and checkpoints."""

WAITING = "Waiting for"
"""Prefix of Spark's status of a query between its triggers; it does not appear before the first one."""

WATCH_S = 1.0
FIRST_WATCH_S = 0.1
PRESENCE_TICK = PresenceEvent(client="", event="tick", gateway="", epoch=0, seq=0, at_us=0)

log = structlog.get_logger(__name__)


def pool_of(query: str) -> str:
    """The scheduler pool of a query (`conf/fairscheduler.xml`), set on the thread that starts the query."""
    return POOLS.get(query, "history")


def session_settings(settings: Settings, pools: Path) -> dict[str, str]:
    """The ledger session's settings in addition to :mod:`jobs.runtime.spark_session`: pools, so that history delays no
    awaited result."""
    return {
        "spark.driver.memory": settings.stack.ledger_heap,
        JAVA_OPTIONS: settings.stack.ledger_java_options,
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": pools.absolute().as_uri(),
        # Otherwise one query that does not end would block the others until the supervisor kills them all.
        "spark.sql.streaming.stopTimeout": f"{round(settings.stack.stop_timeout_s * STOP_SHARE * 1000)}ms",
        **storage_settings(settings.storage),
    }


@dataclass
class Supervised:
    """Keeps a query running: starts it when due, and restarts it after failures, with growing delays."""

    spark: SparkSession
    name: str
    start: Start
    first_pause_s: float
    report: Callable[[str, str], None]
    query: StreamingQuery | None = None
    due: float = 0.0
    pause_s: float = 0.0
    began: float = 0.0

    def watch(self, now: float) -> None:
        """Starts or restarts the query when due."""
        if self.query is not None and not self.query.isActive:
            self._failed(now, str(self.query.exception() or "the query was stopped"))
        if self.query is None and now >= self.due:
            try:
                self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool_of(self.name))
                self.query, self.began = self.start(), now
            except START_ERRORS as error:
                self._failed(now, str(getattr(error, "java_exception", error)))

    @property
    def last_batch(self) -> int:
        """The number of the last finished batch; -1 if none has finished since the query was started."""
        progress = None if self.query is None else self.query.lastProgress
        return -1 if progress is None else progress.batchId

    def has_begun(self) -> bool:
        """Whether its first batch has finished, or it has found nothing to do."""
        if self.query is None:
            return False
        status = self.query.status
        return self.last_batch >= 0 or (not status["isTriggerActive"] and status["message"].startswith(WAITING))

    def stop(self) -> None:
        """Interrupts a batch that is running: it is repeated at the next start."""
        if self.query is not None:
            try:
                self.query.stop()
            except Py4JJavaError as error:
                log.warning("query does not stop", query=self.name, error=first_line(str(error.java_exception)))

    def _failed(self, now: float, error: str) -> None:
        lasted = now - self.began > LONGEST_PAUSE_S
        self.pause_s = self.first_pause_s if lasted or not self.pause_s else min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.query, self.due = None, now + self.pause_s
        self.report(self.name, error)
        log.error("query failed", query=self.name, error=first_line(error), again_in_s=self.pause_s)


def may_begin_next(begun: Sequence[Supervised], folded: int) -> bool:
    """Whether the last of those started has finished its first batch, or has nothing to do, and the first, which folds
    routes, has finished one after `folded`."""
    return begun[-1].has_begun() and begun[0].last_batch > folded


def tick(
    producer: Producer, topic: str, partitions: int, event: RouteEvent | PresenceEvent, every_s: float, stopped: Event
) -> None:
    """Writes a tick to each partition of a topic now and every `every_s` seconds, whatever the queries do. Its append
    time only marks how far the records before it reach, and has no effect until they are processed."""
    while not stopped.is_set():
        for partition in range(partitions):
            try:
                producer.produce(topic, key=event.kafka_key, value=encode(event), partition=partition)
            except BufferError:
                log.warning("skipped a tick, the broker does not answer", topic=topic)
            except KafkaException as error:
                log.warning("skipped a tick", topic=topic, reason=error.args[0].str())
        producer.poll(0)
        stopped.wait(every_s)
    producer.purge()


def start_ticks(settings: Settings, stopped: Event) -> None:
    """Starts the ticks of routes and of presence, each in a thread of its own."""
    topics = Topics(settings.kafka.prefix)
    client = {"linger.ms": 0, "message.timeout.ms": 10_000, **settings.kafka.client}
    ticks = (
        (topics.routes, 1, RouteEvent(op="tick"), settings.ledger.routes_trigger_s),
        (topics.presence, settings.kafka.ingress_partitions, PRESENCE_TICK, settings.presence.heartbeat_s),
    )
    for topic, partitions, event, every_s in ticks:
        producer = Producer({**client, "bootstrap.servers": settings.kafka.bootstrap})
        arguments = (producer, topic, partitions, event, every_s, stopped)
        Thread(target=tick, args=arguments, name=f"tick {topic}", daemon=True).start()


def run(settings: Settings, part: str, stopped: Event) -> None:
    """Runs all queries until `stopped`. Ready once routes are folded, which routers need.

    The others start one by one, each when the previous one has finished its first batch, if it has one, and routes have
    been folded again. If all started at once they would keep a small machine busy for a minute: routes would not be
    folded in time, and routers would send everything to every shard. Starting later loses nothing. Raises JobError if
    another process has the checkpoints: a data directory has one ledger.
    """
    held = hold_checkpoints(settings, PART, "use another data directory", stopped)
    of = settings.ledger
    listen_at = ListenAddress(of.metrics_host, of.metrics_port, "ledger.metrics_host", "ledger.metrics_port")
    reading = BoundedReading(settings.tables)
    asked = JourneyRequests(reading, of.token_file, lambda: datetime.now(UTC).date()) if of.journeys else None
    routes = asked.routes() if asked is not None else []
    observer = Observer(part or PART, listen_at, settings.log, time.time, routes=routes)
    routes_metrics = RoutesMetrics(observer.registry, settings.router.route_lead_s)
    comparison = FeedComparison(FeedMetrics(observer.registry))
    with resources.as_file(resources.files("conf").joinpath("fairscheduler.xml")) as pools:
        spark = build_session(PART, f"local[{THREADS}]", session_settings(settings, pools))
    sinks.ensure_tables(settings.tables)
    listener = StatusListener(settings.data, PART, time.time, observer.watchers)
    spark.streams.addListener(listener)
    start_ticks(settings, stopped)
    limiter = BatchLimiter(of.batches_at_once)
    supervised = [
        Supervised(spark, name, start, of.restart_backoff_s, listener.failed)
        for name, start in queries(spark, settings, time.time, routes_metrics.folded, limiter, comparison).items()
    ]
    observer.watch(spark, {query.name: trigger_s(query.name, settings) for query in supervised})
    started, at, folded, settled = 1, time.monotonic(), -1, False
    while not stopped.is_set():
        now = time.monotonic()
        observer.look(now)
        for query in supervised[:started]:
            if not stopped.is_set():
                query.watch(now)
        has_waited = started > 1 and now - at > LONGEST_FIRST_BATCH_S
        if started < len(supervised) and (has_waited or may_begin_next(supervised[:started], folded)):
            if started == 1:
                if part:
                    announce_ready(settings.data, part, {"listeners": observer.listeners})
                log.info("ready", then=[query.name for query in supervised[1:]])
            started, at, folded = started + 1, now, supervised[0].last_batch
            continue
        if started == len(supervised) and not settled and (has_waited or all(map(Supervised.has_begun, supervised))):
            settled = True
            log.info("all queries started")
            if part:
                announce_ready(settings.data, part, {"listeners": observer.listeners, "settled": True})
        stopped.wait(FIRST_WATCH_S if started == 1 else WATCH_S)
    observer.readiness.ends()
    limiter.end(len(supervised))
    with ThreadPoolExecutor(len(supervised)) as pool:
        list(pool.map(Supervised.stop, supervised))
    spark.stop()
    observer.stop()
    reading.close()
    held.close()


def main() -> int:
    return run_application(run)


if __name__ == "__main__":
    sys.exit(main())
