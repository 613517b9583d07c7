"""Everything that the pipelines write: Delta tables (history through :mod:`pipelines.storage.appends`, states through
:mod:`pipelines.storage.current_table`), Kafka topics (presence through :mod:`pipelines.presence.client_presence_sink`),
and the creation of tables."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction, write_deltalake
from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming import StreamingQuery

from pipelines.kafka.positions import ReadTopic
from pipelines.ledger.batch_limiter import BatchLimiter
from pipelines.records import Format, judged, quarantine_records
from pipelines.routing import routes
from pipelines.sources import Kafka, table_uri
from pipelines.spark_schemas import table_schema
from pipelines.storage.appends import Appends, Quarantine
from pipelines.storage.checkpoints import Checkpoint
from pipelines.storage.current_table import CurrentTable, current_rows
from pipelines.storage.local_database import file_of
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles, query_id, until_committed
from pipelines.streams import StreamId
from schemas.identity import CATCH_ALL
from schemas.table import Table
from schemas.tables import ROUTES, TABLES

LARGEST_RECORD_BYTES = 32 * 1024 * 1024
FULLEST_BATCH_BYTES = 256 * 1024
"""The most a producer puts into one request for a partition while earlier requests are under way; it never waits to
fill one. Kafka's own 16 KiB make thousands of requests a second under load, which cost producer and broker a fifth of
the throughput."""

PROPERTIES = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 day",
    # Delta does not allow more than the log's retention.
    "delta.deletedFileRetentionDuration": "interval 1 day",
    # So that deltalake, DuckDB and Polars can read the tables.
    "delta.enableDeletionVectors": "false",
    "delta.checkpointPolicy": "classic",
}
REWRITTEN = PROPERTIES | {
    # Buckets are rewritten every few seconds: remembering removed files for longer would slow down every snapshot and
    # fill the disk.
    "delta.logRetentionDuration": "interval 1 hour",
    "delta.deletedFileRetentionDuration": "interval 1 hour",
}

CATCH_ALL_ROW = f"""
    SELECT '{CATCH_ALL}' AS route_key, CAST({routes.CATCH_ALL_BUCKET} AS INT) AS bucket,
           coalesce(max(targets), make_array()) AS targets, max(as_of) AS as_of
    FROM routes
    WHERE false
"""
"""For an empty table: with nothing to aggregate, this gives one row with the types of the columns."""


class Remembered(NamedTuple):
    """Where the keys of a table are remembered, and for how long."""

    directory: Path
    kept_s: int


def files_of(stream: StreamId, tables: str, table: Table, topic: ReadTopic | None) -> tuple[TableFiles, Checkpoint]:
    """The table's files as `stream`, which reads `topic`, writes them, and the stream's checkpoint."""
    checkpoint = Checkpoint(stream, tables, table.name)
    return TableFiles(table_uri(tables, table), table, topic, checkpoint), checkpoint


def quarantine_to(kafka: Kafka, topic: str) -> Quarantine:
    """A function that writes the bad records of a batch (:func:`pipelines.records.judged`) to the topic
    `quarantine`."""

    def write(batch: DataFrame) -> None:
        bad = batch.transform(quarantine_records)
        bad.write.format("kafka").options(**kafka.options()).option("topic", topic).save()

    return write


def append_to_table(
    rows: DataFrame,
    stream: StreamId,
    tables: str,
    table: Table,
    trigger_s: float,
    quarantine: Quarantine | None = None,
    topic: ReadTopic | None = None,
    limiter: BatchLimiter | None = None,
    seen: Remembered | None = None,
) -> StreamingQuery:
    """Start appending `rows` to a Delta table. Rows marked as bad go to `quarantine`.

    Contract: exactly once into the table, at least once to `quarantine` (:class:`pipelines.storage.appends.Appends`).
    With the `topic` of the rows, the table records how far it has that topic. With `limiter`, the batch limiter
    schedules the batches. With `seen`, copies are left out.
    """
    files, checkpoint = files_of(stream, tables, table, topic)
    keys = seen and SeenKeys(file_of(seen.directory, stream.query), table.key, seen.kept_s, files.since)
    write = Appends(files, quarantine, keys)
    return write_batches(rows, stream, checkpoint.uri, limiter.limited(write) if limiter else write, trigger_s)


def write_batches(
    rows: DataFrame, stream: StreamId, checkpoint: str, write: Callable[[DataFrame, int], None], trigger_s: float
) -> StreamingQuery:
    """Start giving the batches of `rows` to `write`, whose contract it is; `checkpoint` is the location of the
    stream's."""
    return (
        rows.writeStream.foreachBatch(write)
        .queryName(stream.name)
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=_interval(trigger_s))
        .start()
    )


def keep_current(
    records: DataFrame,
    stream: StreamId,
    tables: str,
    table: Table,
    form: Format,
    columns: list[Column],
    quarantine: Quarantine,
    trigger_s: float,
    topic: ReadTopic | None = None,
    limiter: BatchLimiter | None = None,
) -> StreamingQuery:
    """Start keeping a current-state table from the `records` of a compacted topic, which have the format `form`.

    Contract: exactly once; bad records go to `quarantine` at least once
    (:class:`pipelines.storage.current_table.CurrentTable`). With `limiter`, the batch limiter schedules the batches.
    """
    files, checkpoint = files_of(stream, tables, table, topic)
    write = CurrentTable(table, files, quarantine)
    return (
        current_rows(records, form, columns)
        .writeStream.foreachBatch(limiter.limited(write) if limiter else write)
        .queryName(stream.name)
        .option("checkpointLocation", checkpoint.uri)
        .trigger(processingTime=_interval(trigger_s))
        .start()
    )


def tell_states(
    events: DataFrame, stream: StreamId, tables: str, sink: Callable[[DataFrame, int], None], trigger_s: float
) -> StreamingQuery:
    """Start publishing what follows from events. The contract is that of the sink."""
    return write_batches(events, stream, stream.checkpoint(tables), sink, trigger_s)


def produce_in_real_time(
    records: DataFrame, stream: StreamId, checkpoint: str, kafka: Kafka, batch_s: float
) -> StreamingQuery:
    """Start writing `records` (`topic, key, value, headers, partition`) as they come, in Real-Time Mode.

    `batch_s` is how long a batch lasts; then offsets are logged and static sides re-read. Contract: at least once, in
    the order of the source partition; a crash repeats up to one batch.
    """
    writer = (
        records.writeStream.format("kafka")
        .queryName(stream.name)
        .outputMode("update")
        .options(**kafka.options())
        .option("kafka.linger.ms", "0")
        .option("kafka.batch.size", str(FULLEST_BATCH_BYTES))
        # Every record that the broker accepted from a gateway must fit; Kafka's default limit is 1 MiB.
        .option("kafka.max.request.size", str(LARGEST_RECORD_BYTES))
        .option("includeHeaders", "true")
        .option("checkpointLocation", checkpoint)
    )
    # pyspark's stubs lack Real-Time Mode.
    query: StreamingQuery = writer.trigger(realTime=_interval(batch_s)).start()  # type: ignore[call-overload]
    return query


def fold_into_routes(
    records: DataFrame, stream: StreamId, table: "RoutesTable", quarantine: Quarantine, trigger_s: float
) -> StreamingQuery:
    """Start folding records of `routes` into the routes table. Bad records go to `quarantine`.

    Contract: exactly once into the table (:class:`RoutesTable`); at least once to `quarantine`, before the table.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        buckets, bad_ones, as_of_us = routes.touched(batch).collect()[0]
        if bad_ones:
            quarantine(batch.transform(judged, routes.route_format()))
        if as_of_us is not None:
            table.write(batch, buckets, as_of_us, query_id(batch.sparkSession), batch_id)

    return (
        records.writeStream.foreachBatch(write)
        .queryName(stream.name)
        .option("checkpointLocation", stream.checkpoint(table.tables, ROUTES.name))
        .trigger(processingTime=_interval(trigger_s))
        .start()
    )


@dataclass
class RoutesTable:
    """The routes table under `tables`, as the fold writes it; see :mod:`pipelines.routing.routes` for the rest.

    A batch is one commit with Spark's id of the query and the batch's number. A number that the table already has is
    skipped, so a batch may be repeated; batches of a new checkpoint have a new id and are not skipped. If maintenance
    has removed ended targets meanwhile, the batch is folded again. No MERGE: it is slower and leaves more files behind.
    Spark folds; deltalake reads and commits in tens of milliseconds, where Spark takes a second for each, and many in a
    new process.

    `on_folded` is called after each batch with `as_of`, µs since the epoch: how far the table is.
    """

    tables: str
    lead_s: float
    window_days: int
    on_folded: Callable[[int], None] = lambda _as_of_us: None
    _has_folded: bool = False

    def write(self, batch: DataFrame, buckets: list[int], as_of_us: int, query: str, batch_id: int) -> None:
        """Fold one batch of records of `routes`; the other arguments come from
        :func:`pipelines.routing.routes.touched`.

        The first batch of a process is folded whatever it holds: loading what the fold needs takes seconds, and should
        happen before anyone waits for a route.
        """
        for attempt in until_committed():
            with attempt:
                self._write(batch, buckets, as_of_us, query, batch_id)

    def _write(self, batch: DataFrame, buckets: list[int], as_of_us: int, query: str, batch_id: int) -> None:
        table = DeltaTable(table_uri(self.tables, ROUTES))
        written = table.transaction_version(query)
        commit = CommitProperties(app_transactions=[Transaction(query, batch_id)])
        if written is not None and written >= batch_id:
            return
        if buckets or not self._has_folded:
            self._fold(table, batch, buckets, as_of_us, commit)
            self._has_folded = True
        else:
            moment = f"to_timestamp_micros({as_of_us})"
            table.update(updates={"as_of": moment}, predicate=routes.in_buckets([]), commit_properties=commit)
        self.on_folded(as_of_us)

    def _fold(
        self, table: DeltaTable, batch: DataFrame, buckets: list[int], as_of_us: int, commit: CommitProperties
    ) -> None:
        concerned = routes.in_buckets(buckets)
        known = table.to_pyarrow_dataset().to_table(filter=pc.field("bucket").isin([routes.CATCH_ALL_BUCKET, *buckets]))
        current = batch.sparkSession.createDataFrame(known, table_schema(ROUTES))
        rows = routes.fold(current, routes.route_events(batch), as_of_us, self.lead_s, self.window_days)
        write_deltalake(table, rows.toArrow(), mode="overwrite", predicate=concerned, commit_properties=commit)


def ensure_tables(tables: str) -> None:
    """Create the missing Delta tables, with their comments, under the directory or URI `tables`.

    Takes a tenth of a second (Spark is needed only to parse types). The routes table gets its catch-all row at once,
    without `as_of`. So routers can start: they know no routes, and send everything to every shard until the first
    events are folded.
    """
    for table in TABLES.values():
        ensure_table(tables, table)
    routes_table = DeltaTable(table_uri(tables, ROUTES))
    if not routes_table.file_uris():
        known = QueryBuilder().register("routes", routes_table)
        write_deltalake(routes_table, known.execute(CATCH_ALL_ROW).read_all(), mode="append")


def ensure_table(tables: str, table: Table) -> None:
    """Create a table if it is missing, with its declaration as the first commit of its Delta log. deltalake takes
    milliseconds; Spark's own builder takes a second per table of a fresh installation. A table of an earlier version
    gets the columns it lacks, null in existing rows."""
    declared = Schema.from_json(table_schema(table).json())
    existing = DeltaTable.create(
        table_uri(tables, table),
        declared,
        mode="ignore",
        partition_by=list(table.partition_by),
        name=table.name,
        description=table.doc,
        configuration=dict(REWRITTEN if "bucket" in table.partition_by else PROPERTIES),
    )
    there = {field.name for field in existing.schema().fields}
    missing = [field for field in declared.fields if field.name not in there]
    if missing:
        existing.alter.add_columns(missing)


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"
