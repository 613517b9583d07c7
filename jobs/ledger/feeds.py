"""The query that writes the history of redundant feeds (S5)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipelines import sinks
from pipelines.feeds.comparison import FeedComparison
from pipelines.feeds.copies import copies
from pipelines.feeds.copy_sink import CopySink, Storage
from pipelines.feeds.positions import Ended, FeedCheckpoint, FeedFiles, FeedTopics, resolve_feeds
from pipelines.kafka.broker_topics import KafkaTopics
from pipelines.kafka.positions import Lost
from pipelines.ledger.batch_limiter import BatchLimiter
from pipelines.sources import Kafka, table_uri, topics_stream
from pipelines.storage.appends import Quarantine
from pipelines.storage.local_database import file_of
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles
from pipelines.streams import StreamId
from schemas import feed_tables
from schemas.settings import DAY_S, Settings
from schemas.topics import Topics

SEEN_OF_SLOTS = ("feed", "slot", "appended")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class FeedCopies:
    """Starts the query `feed_copies`: it reads all topics of feeds, also those that are created later, and writes
    `feed_copies` and `feed_progress`."""

    spark: SparkSession
    settings: Settings
    kafka: Kafka
    quarantine: Quarantine
    on_lost: Callable[[Lost], None]
    comparison: FeedComparison | None = None
    limiter: BatchLimiter | None = None

    def start(self, trigger_s: float) -> StreamingQuery:
        settings, of = self.settings, self.settings.ledger
        prefix, stream = Topics(settings.kafka.prefix).feed(""), StreamId(feed_tables.FEED_COPIES.name)
        topics = FeedTopics(KafkaTopics(self.kafka), prefix)
        checkpoint = FeedCheckpoint(stream, settings.tables, feed_tables.FEED_COPIES.name)
        uri = table_uri(settings.tables, feed_tables.FEED_COPIES)
        files = FeedFiles(uri, feed_tables.FEED_COPIES, topics, checkpoint)
        starting = resolve_feeds(topics.known, checkpoint, files, self.on_lost, _say_ended)
        records = topics_stream(self.spark, self.kafka, prefix, of.max_offsets_per_trigger, True, starting)
        rows = copies(records.coalesce(of.tasks_per_batch), prefix, of.feed_payloads)
        states, kept_s = Path(settings.data) / "states", of.message_window_days * DAY_S
        seen = SeenKeys(file_of(states, stream.query), feed_tables.FEED_COPIES.key, kept_s, files.since)
        progress = TableFiles(table_uri(settings.tables, feed_tables.FEED_PROGRESS), feed_tables.FEED_PROGRESS)
        if self.comparison is not None:
            self.comparison.resume(progress.since(SEEN_OF_SLOTS, kept_s))
        sink = CopySink(Storage(files, progress, seen, files.partitions), self.quarantine, self.comparison)
        write = self.limiter.limited(sink) if self.limiter else sink
        return sinks.write_batches(rows, stream, checkpoint.uri, write, trigger_s)


def _say_ended(ended: Ended) -> None:
    what = "was deleted and created again: reading the new one" if ended.is_replaced else "was deleted"
    log.warning(f"the topic of a feed {what}", topic=ended.topic, read_until=dict(ended.taken))
