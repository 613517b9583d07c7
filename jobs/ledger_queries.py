"""The streaming queries of the ledger application: what each reads, makes of it, and writes, and how often."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipelines import completion, ledger, message_presence, presence, routes, sinks
from pipelines.custody import Limits
from pipelines.kafka_writer import KafkaWriter
from pipelines.presence_sink import PresenceSink
from pipelines.sources import Kafka, topic_stream
from pipelines.streams import StreamId
from schemas import tables
from schemas.settings import Settings
from schemas.topics import Topics

TICKS_A_BATCH = 12

Start = Callable[[], StreamingQuery]


def trigger_s(query: str, settings: Settings) -> float:
    """How often a query is to begin a batch, in seconds."""
    of, presence_of = settings.ledger, settings.presence
    own = {
        "routes": of.routes_trigger_s,
        "completion": of.completion_trigger_s,
        "presence_state": presence_of.trigger_s,
        "message_presence_state": presence_of.trigger_s,
        "presence": presence_of.table_trigger_s,
        "message_presence": presence_of.table_trigger_s,
    }
    return own.get(query, of.trigger_s)


def queries(
    spark: SparkSession,
    settings: Settings,
    clock: Callable[[], float],
    on_folded: Callable[[int], None] = lambda _as_of_us: None,
) -> Mapping[str, Start]:
    """How each query of the application is started. Routes first: routers wait for them. `clock` gives seconds since
    the epoch; `on_folded` is told how far routes are folded, µs since the epoch."""
    topics, of, presence_of = Topics(settings.kafka.prefix), settings.ledger, settings.presence
    partitions = settings.kafka.ingress_partitions
    kafka = Kafka(settings.kafka.bootstrap, settings.kafka.client)
    lead_s, window = settings.router.route_lead_s, of.message_window_days

    def read(*names: str, headers: bool = False, min_offsets: int = 0) -> DataFrame:
        records = topic_stream(spark, kafka, names, of.max_offsets_per_trigger, headers, min_offsets)
        return records.coalesce(of.tasks_per_batch)

    quarantine, writer = sinks.quarantine_to(kafka, topics.quarantine), KafkaWriter(kafka)

    def append(rows: DataFrame, table: tables.Table) -> StreamingQuery:
        bad_to = quarantine if "quarantined" in rows.columns else None
        return sinks.append_to_table(
            rows, StreamId(table.name), settings.tables, table, trigger_s(table.name, settings), bad_to
        )

    def fold_routes() -> StreamingQuery:
        table, stream = sinks.RoutesTable(settings.tables, lead_s, window, on_folded), StreamId("routes")
        return sinks.fold_into_routes(read(topics.routes), stream, table, quarantine, trigger_s(stream.query, settings))

    def keep_routes_history() -> StreamingQuery:
        # Most records are ticks, which leave no row: an empty commit for each would cost more than all else when idle.
        records = read(topics.routes, min_offsets=TICKS_A_BATCH)
        return append(routes.routes_history(records, lead_s), tables.ROUTES_HISTORY)

    def find_completions() -> StreamingQuery:
        found = completion.completions(read(topics.progress), settings.kafka.shards, window)
        stream = StreamId("completion")
        every_s = trigger_s(stream.query, settings)
        return sinks.produce_to_topic(found, stream, settings.tables, kafka, topics.completion, every_s, "update")

    def merge_presence() -> StreamingQuery:
        changes = presence.changes(read(topics.presence), presence_of.attachments, presence_of.kept_s)
        sink = PresenceSink(kafka, writer, topics, partitions, presence_of, clock)
        return sinks.tell_presence(changes, StreamId("presence_state"), settings.tables, sink, presence_of.trigger_s)

    def merge_message_presence() -> StreamingQuery:
        limits = Limits(presence_of.claim_s, presence_of.kept_s, presence_of.agents)
        states = message_presence.states(read(topics.message_presence), limits)
        stream, topic = StreamId("message_presence_state"), topics.message_presence_state
        return sinks.produce_to_topic(states, stream, settings.tables, kafka, topic, presence_of.trigger_s, "update")

    def keep(topic: str, table: tables.Table, rows_of: Callable[[DataFrame], DataFrame]) -> StreamingQuery:
        every_s = presence_of.table_trigger_s
        return sinks.keep_current(read(topic), StreamId(table.name), settings.tables, table, rows_of, every_s)

    return {
        "routes": fold_routes,
        "completion": find_completions,
        "presence_state": merge_presence,
        "message_presence_state": merge_message_presence,
        "messages": lambda: append(ledger.messages(read(topics.ingress, headers=True)), tables.MESSAGES),
        "instructions": lambda: append(
            ledger.instructions(read(topics.egress, headers=True), window), tables.INSTRUCTIONS
        ),
        "outcomes": lambda: append(ledger.outcomes(read(topics.progress), window), tables.OUTCOMES),
        "completions": lambda: append(ledger.completions(read(topics.completion), window), tables.COMPLETIONS),
        "presence_history": lambda: append(ledger.presence_history(read(topics.presence)), tables.PRESENCE_HISTORY),
        "routes_history": keep_routes_history,
        "message_presence_history": lambda: append(
            message_presence.history(read(topics.message_presence)), tables.MESSAGE_PRESENCE_HISTORY
        ),
        "presence": lambda: keep(topics.presence_state, tables.PRESENCE, presence.rows),
        "message_presence": lambda: keep(topics.message_presence_state, tables.MESSAGE_PRESENCE, message_presence.rows),
        "quarantine": lambda: append(ledger.quarantine(read(topics.quarantine), window), tables.QUARANTINE),
    }
