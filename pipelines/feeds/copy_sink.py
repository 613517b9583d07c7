"""Takes the batches of a stream of copies: rows of `feed_copies` and `feed_progress`.

A batch is written by Spark, once. Of its rows only the columns of the key are then read back, to drop what a slot has
already brought (:class:`pipelines.storage.seen.SeenKeys`) and to count it. What adapters say they have passed is
gathered by the same job of Spark: it is a few records, and a job of its own would read all topics a second time.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F

from feeds.passed import HEADER as PASSED_HEADER
from pipelines.arrow_schemas import arrow_schema
from pipelines.feeds.comparison import FeedComparison
from pipelines.feeds.copies import Partitions, with_slots
from pipelines.storage.appends import Quarantine
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles, query_id, until_committed
from schemas.feed_tables import FEED_COPIES, FEED_PROGRESS

OF = ("feed", "stream", "slot", "partition")
"""What a row of `feed_progress` is about."""

READ_BACK = (*FEED_COPIES.key, "partition", "offset", "adapter", "appended", "crc32", "payload_bytes")
MARK = ("feed", "stream", "slot", "partition", "sequence", "adapter", "offset")

Progress = dict[str, Any]
"""A row of `feed_progress`, without its date."""


class Storage(NamedTuple):
    """The tables, what the first remembers, and the number of partitions of the topics of a batch."""

    copies: TableFiles
    progress: TableFiles
    seen: SeenKeys
    partitions: Callable[[int], Partitions]


class CopySink:
    """A callback for `foreachBatch`; takes batches of :func:`pipelines.feeds.copies.copies`.

    Contract: exactly once into both tables, `feed_copies` first. A copy that the slot has already brought, within
    `message_window_days`, has no row there; it counts as a duplicate. A batch with records that are no copies is passed
    to `quarantine` before it is committed, so at least once. `comparison` gets each batch after its commits, so at most
    once.
    """

    def __init__(self, storage: Storage, quarantine: Quarantine, comparison: FeedComparison | None = None) -> None:
        self._copies, self._progress, self._seen, self._partitions = storage
        self._quarantine = quarantine
        self._comparison = comparison
        self._columns = [column.name for column in FEED_COPIES.columns]

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch.sparkSession)
        if self._copies.has(query, batch_id) and self._progress.has(query, batch_id):
            return
        rows = batch.transform(with_slots, self._partitions(batch_id))
        is_mark = F.col("quarantined").isNull() & (F.col("kind") == PASSED_HEADER)
        mark = F.struct(*MARK, F.unix_micros("appended").alias("appended_us"))
        observed = Observation()
        judged = rows.observe(
            observed, F.count("quarantined").alias("bad"), F.collect_list(F.when(is_mark, mark)).alias("marks")
        )
        good = judged.where(F.col("quarantined").isNull() & ~is_mark).select(*self._columns)
        directory = self._copies.write(good, batch_id)
        if observed.get["bad"]:
            self._quarantine(rows)
        new: list[pa.Table] = []
        progress: list[Progress] = []

        def first(copies: pa.Table) -> pa.Array:
            is_first = self._seen.first(copies, query, batch_id)
            progress.extend(counted(copies, is_first))
            new.append(copies.filter(is_first))
            return is_first

        self._copies.keep(directory, READ_BACK, first)
        self._commit(directory, query, batch_id)
        rows_of_progress = progress_rows(progress, observed.get["marks"])
        self._progress.append(rows_of_progress, query, batch_id)
        if self._comparison is not None:
            self._comparison.take(new[0] if new else None, rows_of_progress.to_pylist())

    def _commit(self, directory: str, query: str, batch_id: int) -> None:
        for attempt in until_committed():
            with attempt:
                if not self._copies.has(query, batch_id):
                    self._copies.commit(directory, query, batch_id)


def counted(copies: pa.Table, is_first: pa.Array) -> list[Progress]:
    """What a batch brought of each stream and slot. `copies` are all of them, in the order of the topic; `is_first`
    says which are no duplicates."""
    flags = pc.cast(is_first, pa.int64())
    table = copies.append_column("new", flags)
    groups = table.group_by(OF, use_threads=False).aggregate(
        [
            ("new", "sum"),
            ("new", "count"),
            ("sequence", "max"),
            ("adapter", "last"),
            ("offset", "last"),
            ("appended", "last"),
        ]
    )
    return [
        {
            **{name: group[name] for name in OF},
            "adapter": group["adapter_last"],
            "copies": group["new_sum"],
            "duplicates": group["new_count"] - group["new_sum"],
            "highest": group["sequence_max"],
            "passed": None,
            "offset": group["offset_last"],
            "appended": group["appended_last"].astimezone(UTC),
        }
        for group in groups.to_pylist()
    ]


def progress_rows(of_copies: Sequence[Progress], marks: Sequence[Row]) -> pa.Table:
    """Rows of `feed_progress`: what the copies of a batch are, and how far its `marks` say that adapters have passed.
    The last record of a stream and slot, of either kind, gives adapter, position and time."""
    found = {tuple(row[name] for name in OF): dict(row) for row in of_copies}
    for mark in marks:
        of = tuple(mark[name] for name in OF)
        nothing = {**dict(zip(OF, of, strict=True)), "copies": 0, "duplicates": 0, "highest": None, "passed": None}
        row = found.setdefault(of, {**nothing, "offset": -1})
        row["passed"] = max(mark["sequence"], row["passed"] or 0)
        if mark["offset"] > row["offset"]:
            row["offset"], row["adapter"] = mark["offset"], mark["adapter"]
            row["appended"] = datetime.fromtimestamp(mark["appended_us"] / 1_000_000, UTC)
    return pa.Table.from_pylist(
        [{**row, "date": _date_of(row)} for row in found.values()], schema=arrow_schema(FEED_PROGRESS)
    )


def _date_of(row: Mapping[str, Any]) -> date:
    appended: datetime = row["appended"]
    return appended.date()
