"""The files of a Delta table: Spark writes them, deltalake adds them to the log.

Delta's own sinks look for the batch's number among the table's transactions. For that they re-read the whole log with a
Spark job in each batch: some 40 % of the ledger's CPU time, and more with every file of the table. deltalake keeps the
table's state in memory and reads only what is new.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileInfo, FileSelector, FileType, PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from pipelines.arrow_schemas import arrow_schema
from pipelines.kafka import positions
from pipelines.kafka.positions import ReadTopic
from pipelines.storage.checkpoints import Checkpoint
from schemas.table import Table

QUERY_ID = "sql.streaming.queryId"
"""Spark's property of a query's thread that holds the query's id, which is that of its checkpoint, across restarts."""

LONGEST_STATISTIC = 64
"""The longest text, in characters, kept as minimum or maximum of a file."""

MILLISECOND = timedelta(milliseconds=1)

MOST_TRIES = 5

READ_ERRORS = (DeltaError, pa.ArrowException, OSError)
"""The exceptions of a read without Spark if the table or its checkpoint does not exist, or cannot be reached, or a file
is damaged: after a power failure it may be cut off."""


def until_committed() -> Retrying:
    """Attempts to read a table and commit to it, repeated until one is not refused.

    deltalake refuses a commit if another writer has removed rows since the table was read, even if these are of a date
    that is no longer kept. Each attempt must re-read the table. Raises the error of the last of `MOST_TRIES` attempts.
    """
    return Retrying(retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(MOST_TRIES), reraise=True)


def query_id(spark: SparkSession) -> str:
    """The id of the streaming query whose batch is running."""
    return str(spark.sparkContext.getLocalProperty(QUERY_ID))


class TableFiles:
    """Batches of one streaming query as files of the table at `uri`, one commit each.

    Contract: exactly once. The commit carries the query's id and the batch's number. Each attempt writes into a
    directory of its own, which nobody reads before it is committed. VACUUM removes the directories of attempts that a
    crash ended.

    With the query's `topic` and `checkpoint`, a commit also records how far the table has the topic
    (:mod:`pipelines.kafka.positions`).
    """

    def __init__(
        self, uri: str, table: Table, topic: ReadTopic | None = None, checkpoint: Checkpoint | None = None
    ) -> None:
        self._uri = uri
        self._table = table
        self._topic = topic
        self._checkpoint = checkpoint

    def has(self, query: str, batch_id: int) -> bool:
        """Whether the table has the batch."""
        self._delta.update_incremental()
        written = self._delta.transaction_version(query)
        return written is not None and written >= batch_id

    def has_of_topic(self) -> dict[int, int]:
        """How far the table has the query's topic, by partition; empty if it has nothing of it."""
        return dict(self._has_of_topic)

    @property
    def is_silent(self) -> bool:
        """Whether the table has rows but does not record its positions, like tables of earlier versions."""
        return positions.is_silent(self._delta)

    def write(self, rows: DataFrame, batch_id: int) -> str:
        """Write files; returns their directory, for `commit`."""
        directory = f"{batch_id}-{uuid4()}"
        rows.write.partitionBy(*self._table.partition_by).parquet(f"{self._uri}/{directory}")
        return directory

    def commit(self, directory: str, query: str, batch_id: int) -> None:
        """Make the files part of the table. Without rows, nothing is committed."""
        files: list[AddAction | RemoveAction] = list(self._added(directory))
        if files:
            properties, partition_by = self._properties(query, batch_id), list(self._table.partition_by)
            self._delta.create_write_transaction(
                files, "append", self._delta.schema(), partition_by, None, commit_properties=properties
            )

    def keep(self, directory: str, columns: Sequence[str], chosen: Callable[[pa.Table], pa.Array]) -> None:
        """Keep only those rows of a directory that are `chosen`, given the `columns` of all rows in the order they were
        written. Also asked about a directory without rows: it may note which batches it has had."""
        files = sorted(self._files_in(directory), key=lambda file: str(file.path))
        read = [self._read(file, columns) for file in files]
        rows = pa.concat_tables(read) if read else arrow_schema(self._table).empty_table().select(columns)
        all_chosen, first = chosen(rows), 0
        for file, of in zip(files, read, strict=True):
            of_file = all_chosen.slice(first, of.num_rows)
            first += of.num_rows
            if not pc.all(of_file, min_count=0).as_py():
                self._rewrite(file, of_file)

    def since(self, columns: Sequence[str], kept_s: int) -> Iterator[pa.RecordBatch]:
        """Those of these `columns` that the table has, for its rows of the last `kept_s` before its newest date."""
        known = [column.name for column in self._table.columns if column.name in columns]
        dates = [date.fromisoformat(of["date"]) for of in self._delta.partitions()]
        if dates:
            is_young = ds.field("date") >= max(dates) - timedelta(seconds=kept_s) - timedelta(days=1)
            yield from self._delta.to_pyarrow_dataset().to_batches(columns=known, filter=is_young)

    def rows_in(self, partitions: Sequence[int]) -> pa.Table:
        """The table's rows in the partitions with these values, as of the last :meth:`has`."""
        (partition,) = self._table.partition_by
        return self._delta.to_pyarrow_dataset().to_table(filter=ds.field(partition).isin(partitions))

    def append(self, rows: pa.Table, query: str, batch_id: int) -> None:
        """Append rows that were made without Spark, in one commit; nothing if there are none, or the table has the
        batch."""
        if rows.num_rows and not self.has(query, batch_id):
            properties = self._properties(query, batch_id)
            write_deltalake(self._delta, rows, mode="append", commit_properties=properties)

    def replace(self, rows: pa.Table, partitions: Sequence[int], query: str, batch_id: int) -> None:
        """Replace everything in the partitions with these values by `rows`, in one commit."""
        (partition,) = self._table.partition_by
        write_deltalake(
            self._delta,
            rows,
            mode="overwrite",
            predicate=f"{partition} IN ({', '.join(map(str, partitions))})",
            commit_properties=self._properties(query, batch_id),
        )

    def _properties(self, query: str, batch_id: int) -> CommitProperties:
        return CommitProperties(app_transactions=[Transaction(query, batch_id), *self._positions_after(batch_id)])

    def _positions_after(self, batch_id: int) -> list[Transaction]:
        """Never less than before: a query that re-reads its topic to rebuild its state may be behind its table."""
        if self._topic is None or self._checkpoint is None:
            return []
        has, batch = self._has_of_topic, self._checkpoint.reached(batch_id).get(self._topic.name, {})
        has |= {partition: max(offset, has.get(partition, 0)) for partition, offset in batch.items()}
        return positions.transactions(self._topic, has)

    @cached_property
    def _has_of_topic(self) -> dict[int, int]:
        """Read once, because asking for each partition takes milliseconds and a table has one writer."""
        return {} if self._topic is None else positions.recorded_in(self._delta, self._topic)

    @cached_property
    def _delta(self) -> DeltaTable:
        return DeltaTable(self._uri)

    @cached_property
    def _storage(self) -> PyFileSystem:
        return PyFileSystem(DeltaStorageHandler(self._uri))

    def _files_in(self, directory: str) -> Iterator[FileInfo]:
        for file in self._storage.get_file_info(FileSelector(directory, recursive=True)):
            if file.path.endswith(".parquet"):
                yield file

    def _read(self, file: FileInfo, columns: Sequence[str]) -> pa.Table:
        with self._storage.open_input_file(file.path) as opened:
            return pq.ParquetFile(opened).read(columns)

    def _rewrite(self, file: FileInfo, chosen: pa.Array) -> None:
        """Replace a file that nobody reads yet by its `chosen` rows, one group of rows in memory at a time: a batch may
        be larger than memory. The new file has another name, because Hadoop keeps a checksum beside each file it writes
        to a local disk."""
        parent, _, name = file.path.rpartition("/")
        # pyarrow's own `write` passes the handler's stream a buffer, but it accepts only bytes, which the Parquet
        # writer passes.
        with (
            self._storage.open_input_file(file.path) as opened,
            DeltaStorageHandler(self._uri).open_output_stream(f"{parent}/first-{name}") as stream,
        ):
            old = pq.ParquetFile(opened)
            with pq.ParquetWriter(stream, old.schema_arrow, coerce_timestamps="us") as new:
                first = 0
                for group in range(old.num_row_groups):
                    rows = old.read_row_group(group)
                    kept = rows.filter(chosen.slice(first, rows.num_rows))
                    first += rows.num_rows
                    if kept.num_rows:  # a group without rows has no statistics
                        new.write_table(kept)
        for path in (file.path, f"{parent}/.{name}.crc"):
            if self._storage.get_file_info(path).type is FileType.File:
                self._storage.delete_file(path)

    def _added(self, directory: str) -> Iterator[AddAction]:
        for file in self._files_in(directory):
            with self._storage.open_input_file(file.path) as opened:
                footer = pq.read_metadata(opened)
            if footer.num_rows:
                yield _added(file, footer)


def _added(file: FileInfo, footer: pq.FileMetaData) -> AddAction:
    values = dict(part.split("=", 1) for part in file.path.split("/") if "=" in part)
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={name: unquote(value) for name, value in values.items()},
        modification_time=round(file.mtime.timestamp() * 1000),
        data_change=True,
        stats=json.dumps(statistics(footer)),
    )


def statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """The statistics of a file in Delta's log, by which readers can skip it: number of rows, and for each plain column
    minimum, maximum and number of nulls (Delta protocol, "Per-file Statistics").

    Left out: columns without statistics in part of the file, booleans, bytes, and texts longer than
    `LONGEST_STATISTIC`.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        parts = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if "." in name or not all(part is not None and part.has_null_count for part in parts):
            continue
        nulls[name] = sum(part.null_count for part in parts)
        known = [part for part in parts if part.has_min_max]
        if len(known) == sum(part.num_values > 0 for part in parts) > 0:
            low, high = min(part.min for part in known), max(part.max for part in known)
            if _is_statistic(low) and _is_statistic(high):
                least[name], greatest[name] = _as_statistic(low), _as_statistic(high, MILLISECOND)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _is_statistic(value: Any) -> bool:
    return not isinstance(value, bool | bytes) and not (isinstance(value, str) and len(value) > LONGEST_STATISTIC)


def _as_statistic(value: Any, step: timedelta = timedelta(0)) -> Any:
    """A value as statistics have it. Their times are in milliseconds, and some readers take the maximum literally. So
    with `step` a time between two milliseconds is rounded up."""
    if isinstance(value, datetime):
        whole = value.astimezone(UTC)
        whole += step if whole.microsecond % 1000 else timedelta(0)
        return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond // 1000:03}Z"
    return value.isoformat() if isinstance(value, date) else value
