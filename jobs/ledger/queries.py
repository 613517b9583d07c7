"""The streaming queries of the ledger application: what each reads, computes and writes, and how often."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.ledger.feeds import FeedCopies
from pipelines import sinks
from pipelines.feeds.comparison import FeedComparison
from pipelines.kafka.broker_topics import KafkaTopics
from pipelines.kafka.positions import Lost, ReadTopic
from pipelines.kafka.starting_offsets import resolve
from pipelines.kafka.writer import KafkaWriter
from pipelines.ledger import completion, history
from pipelines.ledger.batch_limiter import BatchLimiter
from pipelines.ledger.completion_sink import CompletionSink
from pipelines.ledger.receipt_sink import ReceiptSink
from pipelines.presence import client_presence, message_presence
from pipelines.presence.client_presence_sink import PresenceSink
from pipelines.presence.custody import Limits
from pipelines.presence.message_presence_sink import MessagePresenceSink
from pipelines.records import Format
from pipelines.routing import routes
from pipelines.sources import Kafka, topic_stream, topic_until
from pipelines.storage.checkpoints import Checkpoint
from pipelines.streams import StreamId
from schemas import tables
from schemas.settings import DAY_S, Settings
from schemas.table import Table
from schemas.topics import Topics

TICKS_A_BATCH = 12

HISTORY = (
    "messages",
    "instructions",
    "outcomes",
    "completions",
    "presence_history",
    "routes_history",
    "message_presence_history",
    "presence",
    "message_presence",
    "feed_copies",
    "quarantine",
)
"""The queries whose results nobody waits for."""

APART = 0.02
"""How much longer the interval of each is than that of the previous one, as a share of it. Spark starts the batches of
equal intervals at the same moment, and awaited results would be late because of all of them."""

Start = Callable[[], StreamingQuery]

log = structlog.get_logger(__name__)


def trigger_s(query: str, settings: Settings) -> float:
    """How often a query should start a batch, in seconds; those of history slightly less often than configured, each
    with another interval, so that they do not coincide."""
    of, presence_of = settings.ledger, settings.presence
    own = {
        "routes": of.routes_trigger_s,
        "completion": of.completion_trigger_s,
        "presence_state": presence_of.trigger_s,
        "message_presence_state": presence_of.trigger_s,
    }
    if query in own:
        return own[query]
    every_s = presence_of.table_trigger_s if query in ("presence", "message_presence") else of.trigger_s
    return every_s * (1 + APART * HISTORY.index(query))


def queries(
    spark: SparkSession,
    settings: Settings,
    clock: Callable[[], float],
    on_folded: Callable[[int], None] = lambda _as_of_us: None,
    limiter: BatchLimiter | None = None,
    comparison: FeedComparison | None = None,
) -> Mapping[str, Start]:
    """The function that starts each query of the application. Routes first, because routers wait for them. `clock`
    gives seconds since the epoch; `on_folded` gets the time up to which routes are folded, µs since the epoch;
    `limiter` limits how many write history at the same time; `comparison` gets the copies of redundant feeds."""
    topics, of, presence_of = Topics(settings.kafka.prefix), settings.ledger, settings.presence
    partitions = settings.kafka.ingress_partitions
    kafka = Kafka(settings.kafka.bootstrap, settings.kafka.client)
    lead_s, window = settings.router.route_lead_s, of.message_window_days

    def read(topic: ReadTopic, starting: str, headers: bool = False, min_offsets: int = 0) -> DataFrame:
        most = of.max_offsets_per_trigger
        records = topic_stream(spark, kafka, [topic.name], most, headers, min_offsets, starting)
        return records.coalesce(of.tasks_per_batch)

    quarantine, writer = sinks.quarantine_to(kafka, topics.quarantine), KafkaWriter(kafka)
    states = Path(settings.data) / "states"
    broker = KafkaTopics(kafka)
    feeds = FeedCopies(spark, settings, kafka, quarantine, _say_lost, comparison, limiter)

    def read_anew(name: str, stream: StreamId, table: Table | None = None) -> DataFrame:
        """Records for a query that does not record its positions: from the beginning, if it has no checkpoint."""
        topic, checkpoint = broker.read(name), Checkpoint(stream, settings.tables, table.name if table else None)
        return read(topic, resolve(topic, checkpoint, None, _say_lost))

    def append(
        name: str,
        table: Table,
        rows_of: Callable[[DataFrame], DataFrame],
        has_copies: bool = False,
        headers: bool = False,
        min_offsets: int = 0,
    ) -> StreamingQuery:
        topic, stream = broker.read(name), StreamId(table.name)
        files, checkpoint = sinks.files_of(stream, settings.tables, table, topic)
        starting = resolve(topic, checkpoint, files, _say_lost)
        rows = rows_of(read(topic, starting, headers, min_offsets))
        bad_to = quarantine if "quarantined" in rows.columns else None
        every_s = trigger_s(table.name, settings)
        seen = sinks.Remembered(states, window * DAY_S) if has_copies else None
        return sinks.append_to_table(rows, stream, settings.tables, table, every_s, bad_to, topic, limiter, seen)

    def fold_routes() -> StreamingQuery:
        table, stream = sinks.RoutesTable(settings.tables, lead_s, window, on_folded), StreamId("routes")
        records = read_anew(topics.routes, stream, tables.ROUTES)
        return sinks.fold_into_routes(records, stream, table, quarantine, trigger_s(stream.query, settings))

    def find_completions() -> StreamingQuery:
        stream = StreamId("completion")
        relinquished = completion.relinquished(read_anew(topics.progress, stream))

        def replay(spark: SparkSession) -> DataFrame | None:
            ends = Checkpoint(stream, settings.tables).taken().get(topics.progress)
            return completion.relinquished(topic_until(spark, kafka, topics.progress, ends)) if ends else None

        kept_s, writer = window * DAY_S, KafkaWriter(kafka)
        counted = partitions, settings.kafka.shards, kept_s, states, replay
        receipts = ReceiptSink(writer, topics.ingress, *counted, clock)
        sink = CompletionSink(writer, topics.completion, *counted, receipts)
        return sinks.tell_states(relinquished, stream, settings.tables, sink, trigger_s(stream.query, settings))

    def merge_presence() -> StreamingQuery:
        stream = StreamId("presence_state")
        events = client_presence.reported(read_anew(topics.presence, stream))
        sink = PresenceSink(kafka, writer, topics, partitions, presence_of, clock, states)
        return sinks.tell_states(events, stream, settings.tables, sink, presence_of.trigger_s)

    def merge_message_presence() -> StreamingQuery:
        limits = Limits(presence_of.claim_s, presence_of.kept_s, presence_of.agents)
        stream, topic = StreamId("message_presence_state"), topics.message_presence_state
        events = message_presence.reported(read_anew(topics.message_presence, stream))
        sink = MessagePresenceSink(kafka, KafkaWriter(kafka), topic, partitions, limits, states)
        return sinks.tell_states(events, stream, settings.tables, sink, presence_of.trigger_s)

    def keep(name: str, table: Table, form: Format, columns_of: Callable[[], list[Column]]) -> StreamingQuery:
        topic, stream = broker.read(name), StreamId(table.name)
        files, checkpoint = sinks.files_of(stream, settings.tables, table, topic)
        records = read(topic, resolve(topic, checkpoint, files, _say_lost))
        every_s = presence_of.table_trigger_s
        return sinks.keep_current(
            records, stream, settings.tables, table, form, columns_of(), quarantine, every_s, topic, limiter
        )

    return {
        "routes": fold_routes,
        "completion": find_completions,
        "presence_state": merge_presence,
        "message_presence_state": merge_message_presence,
        "messages": lambda: append(topics.ingress, tables.MESSAGES, history.messages, headers=True),
        "instructions": lambda: append(topics.egress, tables.INSTRUCTIONS, history.instructions, True, headers=True),
        "outcomes": lambda: append(topics.progress, tables.OUTCOMES, history.outcomes, True),
        "completions": lambda: append(topics.completion, tables.COMPLETIONS, history.completions, True),
        "presence_history": lambda: append(topics.presence, tables.PRESENCE_HISTORY, history.presence_history, True),
        # Most records are ticks and have no row: an empty commit for each would dominate the cost of an idle system.
        "routes_history": lambda: append(
            topics.routes,
            tables.ROUTES_HISTORY,
            partial(routes.routes_history, lead_s=lead_s),
            min_offsets=TICKS_A_BATCH,
        ),
        "message_presence_history": lambda: append(
            topics.message_presence, tables.MESSAGE_PRESENCE_HISTORY, message_presence.history
        ),
        "presence": lambda: keep(
            topics.presence_state, tables.PRESENCE, client_presence.state_format(), client_presence.columns
        ),
        "message_presence": lambda: keep(
            topics.message_presence_state,
            tables.MESSAGE_PRESENCE,
            message_presence.state_format(),
            message_presence.columns,
        ),
        "feed_copies": lambda: feeds.start(trigger_s("feed_copies", settings)),
        "quarantine": lambda: append(topics.quarantine, tables.QUARANTINE, history.quarantine, True),
    }


def _say_lost(lost: Lost) -> None:
    log.error("records lost, deleted before they were read", **lost._asdict())
