"""Appending a batch to a Delta table: Spark writes the files, deltalake commits them.

Delta's own streaming sink looks for the batch's number among the table's transactions, and for that reads the whole log
anew with a Spark job for each batch: some 40 % of the ledger's CPU time, and more with every file of the table.
deltalake keeps the table in memory and reads what came since.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileInfo, FileSelector, PyFileSystem
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from schemas.tables import Table

QUERY_ID = "sql.streaming.queryId"
"""Spark's name for the property of a query's thread that holds its id: that of its checkpoint, across starts."""

LONGEST_STATISTIC = 64
"""Characters of a text that is kept as the least or greatest of a file."""

MILLISECOND = timedelta(milliseconds=1)

Quarantine = Callable[[DataFrame], None]
"""Takes a batch with the column `quarantined`, and reports the rows where that is not null."""


class Appends:
    """Appends the batches of one streaming query to the table at `uri`: a callback for `foreachBatch`.

    Contract: exactly once. The commit carries the query's id and the batch's number, and a number that the table has is
    passed over. Each try writes into a directory of its own, which nobody reads unless it is committed; those of tries
    that a crash ended go with VACUUM.

    With `quarantine` batches have the column `quarantined`: rows where it is not null are not appended. A batch that
    has such rows is given to `quarantine` before it is committed, so at least once.
    """

    def __init__(self, uri: str, table: Table, quarantine: Quarantine | None = None) -> None:
        self._uri = uri
        self._table = table
        self._quarantine = quarantine

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = str(batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID))
        self._delta.update_incremental()
        written = self._delta.transaction_version(query)
        if written is not None and written >= batch_id:
            return
        directory = f"{batch_id}-{uuid4()}"
        if self._quarantine is None:
            self._write(batch, directory)
        else:
            bad = Observation()
            self._write(batch.observe(bad, F.count("quarantined").alias("rows")).transform(_good), directory)
            if bad.get["rows"]:
                self._quarantine(batch)
        files: list[AddAction | RemoveAction] = list(self._files(directory))
        if files:
            self._delta.create_write_transaction(
                files,
                "append",
                self._delta.schema(),
                list(self._table.partition_by),
                commit_properties=CommitProperties(app_transactions=[Transaction(query, batch_id)]),
            )

    def _write(self, rows: DataFrame, directory: str) -> None:
        rows.write.partitionBy(*self._table.partition_by).parquet(f"{self._uri}/{directory}")

    @cached_property
    def _delta(self) -> DeltaTable:
        return DeltaTable(self._uri)

    @cached_property
    def _storage(self) -> PyFileSystem:
        return PyFileSystem(DeltaStorageHandler(self._uri))

    def _files(self, directory: str) -> Iterator[AddAction]:
        for file in self._storage.get_file_info(FileSelector(directory, recursive=True)):
            if file.path.endswith(".parquet"):
                with self._storage.open_input_file(file.path) as opened:
                    footer = pq.read_metadata(opened)
                if footer.num_rows:
                    yield _added(file, footer)


def _good(batch: DataFrame) -> DataFrame:
    return batch.where(F.col("quarantined").isNull()).drop("quarantined")


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
    """What Delta's log tells readers of a file, so that they can pass over it: rows, and of each plain column the least
    and greatest value and the number of nulls (Delta protocol, "Per-file Statistics").

    Left out: what a part of the file does not tell, booleans, bytes, and texts longer than `LONGEST_STATISTIC`.
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
            if _is_told(low) and _is_told(high):
                least[name], greatest[name] = _told(low), _told(high, MILLISECOND)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _is_told(value: Any) -> bool:
    return not isinstance(value, bool | bytes) and not (isinstance(value, str) and len(value) > LONGEST_STATISTIC)


def _told(value: Any, step: timedelta = timedelta(0)) -> Any:
    """A value as statistics have it. They know times by the millisecond, and some readers take the greatest at its
    word: with `step` a time between two milliseconds is that of the second one."""
    if isinstance(value, datetime):
        whole = value.astimezone(UTC)
        whole += step if whole.microsecond % 1000 else timedelta(0)
        return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond // 1000:03}Z"
    return value.isoformat() if isinstance(value, date) else value
