"""The tables of redundant feeds as the real sink writes them, from copies whose append times are chosen."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from feeds.message import Feed, encode, partition_of
from feeds.passed import PassedRecord
from feeds.passed import encode as encode_passed
from harness.feed_receivers import ReceivedCopy
from jobs.query.ledger_reader import LedgerReader
from pipelines.feeds.comparison import FeedComparison, Reporter
from pipelines.feeds.copies import copies
from pipelines.feeds.copy_sink import CopySink, Storage
from pipelines.sinks import ensure_tables
from pipelines.sources import table_uri
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles
from schemas.feed_tables import FEED_COPIES, FEED_PROGRESS
from schemas.settings import DAY_S
from tests.integration.pipelines.streamed import in_batches, kafka_rows

PREFIX, PARTITIONS = "t.feed.", 4
Record = tuple[Any, ...]


class FeedTopic:
    """The records of a feed's topic; gives them their offsets, and times as the broker does."""

    def __init__(self, feed: str, partitions: int = PARTITIONS) -> None:
        self.name = PREFIX + feed
        self.partitions = partitions
        self._ends: dict[int, int] = defaultdict(int)
        self._latest_ms: dict[int, int] = defaultdict(int)

    def copies(self, found: Iterable[ReceivedCopy], later_us: int = 0) -> list[Record]:
        return [self._record(*encode(copy.message), copy.feed, copy.at_us + later_us) for copy in found]

    def passed(self, feed: Feed, stream: str, number: int, at_us: int) -> Record:
        record = PassedRecord(stream, number, 0, at_us, feed.name.lower())
        key, headers, value = encode_passed(record)
        return self._record(key, headers, value, feed, at_us)

    def _record(self, key: bytes, headers: Any, value: bytes | None, feed: Feed, at_us: int) -> Record:
        partition = partition_of(feed, key.decode(), self.partitions)
        offset = self._ends[partition]
        self._ends[partition] += 1
        self._latest_ms[partition] = max(self._latest_ms[partition], at_us // 1000)
        return key, value, self.name, partition, offset, self._latest_ms[partition], headers


def feed_sink(
    directory: Path, topics: Sequence[FeedTopic], reporter: Reporter | None = None, kept_days: int = 7
) -> CopySink:
    """The sink of the ledger over the tables under `directory`; bad records go nowhere."""
    tables = str(directory / "tables")
    ensure_tables(tables)
    files = TableFiles(table_uri(tables, FEED_COPIES), FEED_COPIES)
    progress = TableFiles(table_uri(tables, FEED_PROGRESS), FEED_PROGRESS)
    seen = SeenKeys(directory / "states" / "feed_copies.sqlite", FEED_COPIES.key, kept_days * DAY_S, files.since)
    partitions = {topic.name: topic.partitions for topic in topics}
    comparison = FeedComparison(reporter) if reporter else None
    return CopySink(Storage(files, progress, seen, lambda _batch: partitions), lambda _bad: None, comparison)


def feed_batch(spark: SparkSession, directory: Path, topic: FeedTopic, records: Sequence[Record]) -> None:
    """One batch, without a stream."""
    rows = copies(kafka_rows(spark, records), PREFIX)
    feed_sink(directory, [topic])(rows, 0)


def written(
    spark: SparkSession,
    directory: Path,
    topics: Sequence[FeedTopic],
    batches: Sequence[Sequence[Record]],
    reporter: Reporter | None = None,
    kept_days: int = 7,
) -> LedgerReader:
    """The ledger after these batches."""
    sink = feed_sink(directory, topics, reporter, kept_days)
    in_batches(spark, directory, batches, lambda records: copies(records, PREFIX), sink)
    return LedgerReader(str(directory / "tables"))
