"""The topic of a feed on Kafka, read without a group: live from its end, or a part of it (S3)."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from feeds.errors import FeedRecordError
from feeds.message import Feed, FeedMessage, feed_of_partition, partition_of, partitions_of
from feeds.passed import PassedRecord, decode_either
from jobs.errors import FeedCommandError
from schemas.topics import NO_GROUP

_ANSWER_S: Final = 10.0
_POLL_S: Final = 0.2
BATCH: Final = 1_000


class Entry(NamedTuple):
    """A record of a slot. `appended_ms`: the broker's time; `content` is None if the record is not valid."""

    feed: Feed
    content: FeedMessage | PassedRecord | None
    appended_ms: int


class FeedLog:
    """`partitions` is that of the topic: the first half is of the slot `active`."""

    def __init__(self, bootstrap: str, client: Mapping[str, str], topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._settings: dict[str, str | int | bool | float] = {
            "bootstrap.servers": bootstrap,
            **client,
            "group.id": NO_GROUP,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
        self._live: Consumer | None = None
        self._followed: set[Feed] = set()

    def follow(self, feeds: Collection[Feed], from_ms: int | None = None) -> None:
        """Reads these slots, and no others: those that are read already where they are, new ones from the append time
        `from_ms`, by default from now on. Raises FeedCommandError."""
        if self._live is None:
            self._live = Consumer(self._settings)
        new = [p for feed in feeds if feed not in self._followed for p in self._of(feed)]
        old = [p for feed in self._followed if feed not in feeds for p in self._of(feed)]
        self._followed = set(feeds)
        try:
            # The positions are resolved now, so that nothing that comes from now on is left out.
            starts = [TopicPartition(self._topic, p, self._start(self._live, p, from_ms)) for p in new]
            self._live.incremental_assign(starts)
            self._live.incremental_unassign([TopicPartition(self._topic, p) for p in old])
        except KafkaException as error:
            raise self._refused(error) from error

    def poll(self, timeout_s: float) -> list[Entry]:
        """What has come, of the slots that are followed; waits for so long for the first. Raises FeedCommandError."""
        assert self._live is not None
        first = self._live.poll(timeout_s)
        found = [] if first is None else [first, *self._live.consume(BATCH, 0)]
        return [self._entry(record) for record in found if self._is_record(record)]

    def search(self, feed: Feed, stream: str, first: int, last: int, from_ms: int) -> tuple[list[FeedMessage], bool]:
        """The copies of these numbers in the log of a slot, which is read from the append time `from_ms` to its present
        end; and whether it reaches beyond `last`. Raises FeedCommandError."""
        partition = partition_of(feed, stream, self._partitions)
        copies: dict[tuple[int, int], FeedMessage] = {}
        for entry in self.part(partition, from_ms):
            match entry.content:
                case FeedMessage() as message if message.stream == stream:
                    if message.sequence > last:
                        return list(copies.values()), True
                    if message.sequence >= first:
                        copies[message.sequence, message.part] = message
                case PassedRecord() as word if word.stream == stream and word.sequence >= last:
                    return list(copies.values()), True
        return list(copies.values()), False

    def part(self, partition: int, from_ms: int | None, to_ms: int | None = None) -> Iterator[Entry]:
        """The records of a partition appended from `from_ms` (None: all that are left) to before `to_ms`, or to its end
        at the time of the call. Raises FeedCommandError."""
        consumer = Consumer({**self._settings, "enable.partition.eof": True})
        try:
            low, end = self._bounds(consumer, partition)
            start = low if from_ms is None else self._start(consumer, partition, from_ms)
            if start >= end:
                return
            consumer.assign([TopicPartition(self._topic, partition, start)])
            while True:
                for record in consumer.consume(BATCH, _POLL_S):
                    error = record.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        return
                    if not self._is_record(record):
                        continue
                    if (record.offset() or 0) >= end or (to_ms is not None and record.timestamp()[1] >= to_ms):
                        return
                    yield self._entry(record)
                    if (record.offset() or 0) + 1 >= end:
                        return
        except KafkaException as error:
            raise self._refused(error) from error
        finally:
            consumer.close()

    def partitions_of(self, feed: Feed, stream: str | None) -> list[int]:
        """Those of a slot, or the one of a source stream in it."""
        return self._of(feed) if stream is None else [partition_of(feed, stream, self._partitions)]

    def close(self) -> None:
        if self._live is not None:
            self._live.close()

    def _of(self, feed: Feed) -> list[int]:
        return list(partitions_of(feed, self._partitions))

    def _start(self, consumer: Consumer, partition: int, from_ms: int | None) -> int:
        """The first offset appended at or after `from_ms`; the end if there is none, or for None. Raises
        KafkaException, also if the broker cannot say it."""
        low, end = self._bounds(consumer, partition)
        if from_ms is None:
            return end
        asked = [TopicPartition(self._topic, partition, from_ms)]
        (found,) = consumer.offsets_for_times(asked, timeout=_ANSWER_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return end if found.offset < 0 else max(low, found.offset)  # below 0: nothing is as young as that

    def _bounds(self, consumer: Consumer, partition: int) -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_ANSWER_S)
        return low, high

    def _is_record(self, record: object) -> bool:
        error = record.error()  # type: ignore[attr-defined]  # confluent_kafka.Message
        if error is not None and error.code() in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ):
            raise FeedCommandError(f"cannot read {self._topic}: {error.str()}")
        return error is None

    def _entry(self, record: object) -> Entry:
        key, value, headers = record.key(), record.value(), record.headers()  # type: ignore[attr-defined]
        feed = feed_of_partition(record.partition(), self._partitions)  # type: ignore[attr-defined]
        content: FeedMessage | PassedRecord | None
        try:
            content = decode_either(key, headers, value)
        except FeedRecordError:
            content = None
        return Entry(feed, content, record.timestamp()[1])  # type: ignore[attr-defined]

    def _refused(self, error: KafkaException) -> FeedCommandError:
        return FeedCommandError(
            f"cannot read {self._topic}: {error.args[0].str()}; check that the broker runs and has it"
        )
