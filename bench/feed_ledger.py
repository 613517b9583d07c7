"""The ledger's query `feed_copies` as it runs in production: real topics, real tables, one task a batch."""

import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.feeds import copies
from bench.figures import Figures
from bench.processes import family, fresh_directory
from feeds.message import Feed, FeedMessage, encode, partition_of
from jobs.ledger.feeds import FeedCopies
from jobs.stack.topics import admin_client, create_topics
from pipelines.feeds.comparison import FeedComparison, Pairs, SlotState
from pipelines.kafka.positions import Lost
from pipelines.sinks import ensure_tables, quarantine_to
from pipelines.sources import Kafka
from schemas.settings import process_settings
from schemas.topics import Topic, Topics

PARTITIONS = 4
EVERY_S = 0.1
FLUSH_S = 120


class NoReport:
    """Takes what metrics would show."""

    def brought(self, feed: str, slot: str, copies: int, duplicates: int) -> None: ...

    def paired(self, pairs: Pairs) -> None: ...

    def states(self, slots: Sequence[SlotState], lost: object) -> None: ...


class FeedLedgerBench:
    def __init__(self, spark: SparkSession, bootstrap: str, figures: Figures) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._figures = figures

    def run(self, warm: int, count: int) -> None:
        """Records `feed_ledger_per_s`: copies a second in both tables, of a backlog of `count` messages, each as two
        copies, after `warm` others; and `feed_ledger_cpu_us`, CPU time for each, JVM and Python together."""
        topics = Topics(f"bench{time.monotonic_ns()}.")
        topic = Topic(topics.feed("bench"), PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        create_topics(admin_client(self._bootstrap, {}), [topic])
        found = {feed: copies(feed, warm + count) for feed in Feed}
        with fresh_directory() as data:
            self._produce(topic.name, {feed: of[:warm] for feed, of in found.items()})
            query = self._started(topics, data)
            query.processAllAvailable()
            query.stop()
            self._produce(topic.name, {feed: of[warm:] for feed, of in found.items()})
            process = psutil.Process()
            cpu_before, began = _cpu_s(process), time.monotonic()
            query = self._started(topics, data)
            query.processAllAvailable()
            seconds = time.monotonic() - began
            cpu_s = _cpu_s(process) - cpu_before
            query.stop()
        self._figures.add("feed_ledger_per_s", round(2 * count / seconds))
        self._figures.add("feed_ledger_cpu_us", round(cpu_s / (2 * count) * 1e6, 1))

    def _started(self, topics: Topics, data: Path) -> StreamingQuery:
        settings = process_settings(
            {
                "WAYSTATION_DATA": str(data),
                "WAYSTATION_KAFKA__BOOTSTRAP": self._bootstrap,
                "WAYSTATION_KAFKA__PREFIX": topics.prefix,
            }
        )
        ensure_tables(settings.tables)
        kafka = Kafka(self._bootstrap, {})
        quarantine, comparison = quarantine_to(kafka, topics.quarantine), FeedComparison(NoReport())
        return FeedCopies(self._spark, settings, kafka, quarantine, _lost, comparison).start(EVERY_S)

    def _produce(self, topic: str, found: dict[Feed, list[FeedMessage]]) -> None:
        """The two copies of a message next to each other in time."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )
        for number, pair in enumerate(zip(found[Feed.ACTIVE], found[Feed.BACKUP], strict=True)):
            for feed, message in zip(Feed, pair, strict=True):
                key, headers, value = encode(message)
                partition = partition_of(feed, message.stream, PARTITIONS)
                producer.produce(topic, value, key, partition, headers=list(headers))
            if number % 10_000 == 0:
                producer.poll(0)
        if producer.flush(FLUSH_S):
            raise RuntimeError("the broker did not take all copies")


def _lost(lost: Lost) -> None:
    raise RuntimeError(f"records are lost: {lost}")


def _cpu_s(process: psutil.Process) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in family(process))
