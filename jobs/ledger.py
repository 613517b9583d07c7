"""The ledger application: all micro-batch queries in one Spark session (`python -m jobs.ledger`).

Routes are folded, messages, instructions, outcomes, completions, presence and quarantine go into their Delta tables,
and completions are found. A query that fails is started again after a pause that doubles up to a minute; the others go
on. A `tick` on `routes` says, while nobody subscribes, how far the routes table is complete. SIGTERM ends all of it
cleanly: a batch under way is repeated at the next start, to the same rows.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Event, Thread

import structlog
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.application import hold_checkpoints, run_application
from jobs.progress import StatusListener, first_line
from jobs.spark import build_session
from jobs.storage import storage_settings
from pipelines import completion, ledger, routes, sinks
from pipelines.sources import Kafka, topic_stream
from pipelines.streams import StreamId
from schemas import tables
from schemas.events import RouteEvent, encode
from schemas.readiness import announce_ready
from schemas.settings import Settings
from schemas.topics import Topics

PART = "ledger"
LONGEST_PAUSE_S = 60.0
THREADS = 4
"""Tasks at a time: nine queries share them, and the small jobs of one must not wait for the long ones of another."""
LONGEST_FIRST_BATCH_S = 15.0
"""A query that fails, or takes longer for its first batch, does not hold up the next any more. That of the routes does:
without routes everything is sent to everyone."""

WATCH_S = 1.0
FIRST_WATCH_S = 0.1
TICKS_A_BATCH = 12

log = structlog.get_logger(__name__)

Start = Callable[[], StreamingQuery]


def queries(spark: SparkSession, settings: Settings) -> Mapping[str, Start]:
    """How each query of the application is started. Routes first: routers wait for them."""
    topics, of = Topics(settings.kafka.prefix), settings.ledger
    kafka = Kafka(settings.kafka.bootstrap, settings.kafka.client)
    lead_s, window = settings.router.route_lead_s, of.message_window_days

    def read(*names: str, headers: bool = False, min_offsets: int = 0) -> DataFrame:
        records = topic_stream(spark, kafka, names, of.max_offsets_per_trigger, headers, min_offsets)
        return records.coalesce(of.tasks_per_batch)

    quarantine = sinks.quarantine_to(kafka, topics.quarantine)

    def append(rows: DataFrame, table: tables.Table) -> StreamingQuery:
        bad_to = quarantine if "quarantined" in rows.columns else None
        return sinks.append_to_table(rows, StreamId(table.name), settings.tables, table, of.trigger_s, bad_to)

    def fold_routes() -> StreamingQuery:
        table = sinks.RoutesTable(settings.tables, lead_s, window)
        return sinks.fold_into_routes(read(topics.routes), StreamId("routes"), table, quarantine, of.routes_trigger_s)

    def keep_routes_history() -> StreamingQuery:
        # Most records are ticks, which leave no row: an empty commit for each would cost more than all else when idle.
        records = read(topics.routes, min_offsets=TICKS_A_BATCH)
        return append(routes.routes_history(records, lead_s), tables.ROUTES_HISTORY)

    def find_completions() -> StreamingQuery:
        found = completion.completions(read(topics.progress), settings.kafka.shards, window)
        stream, trigger_s = StreamId("completion"), of.completion_trigger_s
        return sinks.produce_to_topic(found, stream, settings.tables, kafka, topics.completion, trigger_s, "update")

    return {
        "routes": fold_routes,
        "completion": find_completions,
        "messages": lambda: append(ledger.messages(read(topics.ingress, headers=True)), tables.MESSAGES),
        "instructions": lambda: append(
            ledger.instructions(read(topics.egress, headers=True), window), tables.INSTRUCTIONS
        ),
        "outcomes": lambda: append(ledger.outcomes(read(topics.progress), window), tables.OUTCOMES),
        "completions": lambda: append(ledger.completions(read(topics.completion), window), tables.COMPLETIONS),
        "presence_history": lambda: append(ledger.presence_history(read(topics.presence)), tables.PRESENCE_HISTORY),
        "routes_history": keep_routes_history,
        "quarantine": lambda: append(ledger.quarantine(read(topics.quarantine), window), tables.QUARANTINE),
    }


def pool_of(query: str) -> str:
    """The scheduler pool of a query (`conf/fairscheduler.xml`); it goes with the thread that starts the query."""
    return "routes" if query == "routes" else "history"


def session_settings(settings: Settings, pools: Path) -> dict[str, str]:
    """What the ledger's session has beside :mod:`jobs.spark`: pools, so that folding routes never waits for history."""
    return {
        "spark.driver.memory": settings.stack.ledger_heap,
        "spark.driver.extraJavaOptions": settings.stack.ledger_java_options,
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": pools.absolute().as_uri(),
        **storage_settings(settings.storage),
    }


@dataclass
class Supervised:
    """A query that is kept going: started when due, and again, ever later, when it has failed."""

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
        """Start or restart the query if it is time to."""
        if self.query is not None and not self.query.isActive:
            self._failed(now, str(self.query.exception() or "it was stopped"))
        if self.query is None and now >= self.due:
            try:
                self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool_of(self.name))
                self.query, self.began = self.start(), now
            except (PySparkException, Py4JJavaError) as error:
                self._failed(now, str(getattr(error, "java_exception", error)))

    @property
    def last_batch(self) -> int:
        """The number of the last batch that has ended; -1 if none has since the query was started."""
        progress = None if self.query is None else self.query.lastProgress
        return -1 if progress is None else progress.batchId

    def rests(self) -> bool:
        """Whether no batch is under way."""
        return self.query is not None and not self.query.status["isTriggerActive"]

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def _failed(self, now: float, error: str) -> None:
        lasted = now - self.began > LONGEST_PAUSE_S
        self.pause_s = self.first_pause_s if lasted or not self.pause_s else min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.query, self.due = None, now + self.pause_s
        self.report(self.name, error)
        log.error("query failed", query=self.name, error=first_line(error), again_in_s=self.pause_s)


def may_begin_next(begun: Sequence[Supervised], folded: int) -> bool:
    """Whether the last of those begun has done its first batch and the first, which folds routes, one behind `folded`;
    and, as soon as there are others, whether it rests."""
    routes = begun[0]
    return begun[-1].last_batch >= 0 and routes.last_batch > folded and (len(begun) == 1 or routes.rests())


def tick(producer: Producer, topic: str, every_s: float, stopped: Event) -> None:
    """A tick on `routes` now and every `every_s` seconds, whatever the routes query does: its append time says only how
    far the events before it reach, and counts for nothing until they are folded in."""
    while not stopped.is_set():
        event = RouteEvent(op="tick")
        try:
            producer.produce(topic, key=event.kafka_key, value=encode(event), partition=0)
        except BufferError:
            log.warning("tick left out: the broker does not answer")
        producer.poll(0)
        stopped.wait(every_s)
    producer.purge()


def run(settings: Settings, part: str, stopped: Event) -> None:
    """All queries, until `stopped`. Ready once routes are folded, which routers need.

    The others follow one by one, each when the one before it has done its first batch and routes are folded again:
    all at once they would keep a small machine busy for a minute, routes would not be folded in time, and routers would
    send everything to everyone. They lose nothing by beginning later. Raises JobError if another process has the
    checkpoints: a data directory has one ledger.
    """
    held = hold_checkpoints(settings, PART, "choose another data directory", stopped)
    with resources.as_file(resources.files("conf").joinpath("fairscheduler.xml")) as pools:
        spark = build_session(PART, f"local[{THREADS}]", session_settings(settings, pools))
    sinks.ensure_tables(settings.tables)
    listener = StatusListener(settings.data, PART, time.time)
    spark.streams.addListener(listener)
    client = {"linger.ms": 0, "message.timeout.ms": 10_000, **settings.kafka.client}
    producer = Producer({**client, "bootstrap.servers": settings.kafka.bootstrap})
    arguments = (producer, Topics(settings.kafka.prefix).routes, settings.ledger.routes_trigger_s, stopped)
    Thread(target=tick, args=arguments, name="tick", daemon=True).start()
    supervised = [
        Supervised(spark, name, start, settings.ledger.restart_backoff_s, listener.failed)
        for name, start in queries(spark, settings).items()
    ]
    started, at, folded = 1, time.monotonic(), -1
    while not stopped.is_set():
        now = time.monotonic()
        for query in supervised[:started]:
            query.watch(now)
        has_waited = started > 1 and now - at > LONGEST_FIRST_BATCH_S
        if started < len(supervised) and (has_waited or may_begin_next(supervised[:started], folded)):
            if started == 1:
                if part:
                    announce_ready(settings.data, part, {})
                log.info("ready", then=[query.name for query in supervised[1:]])
            started, at, folded = started + 1, now, supervised[0].last_batch
            continue
        stopped.wait(FIRST_WATCH_S if started == 1 else WATCH_S)
    with ThreadPoolExecutor(len(supervised)) as pool:
        list(pool.map(Supervised.stop, supervised))
    spark.stop()
    held.close()


def main() -> int:
    return run_application(run)


if __name__ == "__main__":
    sys.exit(main())
