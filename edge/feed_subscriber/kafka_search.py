"""Searches a partition for ranges of numbers, with a consumer of its own on a thread of its own (S3).

Where a number is in a log is not known exactly. A search begins where the brokers' times point to, and goes back in
growing steps if the first number that it finds is beyond the range. It is bounded: `records_max` records, and
`SEARCH_S` seconds.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kafka import errors
from kafka.structs import TopicPartition

from edge.client.kafka_options import KafkaOptions
from edge.feed_subscriber.batch import Search, SearchResult
from edge.feed_subscriber.errors import FeedUnavailable
from edge.feed_subscriber.kafka_consumer import FeedConsumer
from feeds.errors import FeedRecordError
from feeds.message import FeedMessage
from feeds.passed import decode_either

SEARCH_S: Final = 3.0
_POLL_MS: Final = 100
_STEP: Final = 1_000
_GROWTH: Final = 4
_PROBE: Final = 500


class KafkaSearch:
    """Of the topic `topic`. The consumer is made at the first search."""

    def __init__(
        self, brokers: list[str], options: KafkaOptions, topic: str, connect_s: float, records_max: int
    ) -> None:
        self._brokers, self._options, self._topic = brokers, options, topic
        self._connect_s, self._records_max = connect_s, records_max
        self._thread = ThreadPoolExecutor(1, "waystation-feed-search")
        self._consumer: FeedConsumer | None = None

    async def search(self, wanted: Search) -> SearchResult:
        """What the log has of it; nothing if no broker answers."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._search, wanted)

    async def find(self, partition: int, stream: str, number: int) -> int:
        """An offset behind which all of a source stream is that is not below `number`. Raises FeedUnavailable."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._find, partition, stream, number)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _search(self, wanted: Search) -> SearchResult:
        try:
            return _Scan(self._open(), self._topic, wanted, self._records_max).run()
        except (errors.KafkaError, FeedUnavailable, OSError):
            self._close()
            return SearchResult(wanted, [], [], ended=False)

    def _find(self, partition: int, stream: str, number: int) -> int:
        """By bisection: numbers grow with offsets."""
        at = TopicPartition(self._topic, partition)
        try:
            consumer = self._open()
            low: int = consumer.kafka.beginning_offsets([at])[at]
            high: int = consumer.kafka.end_offsets([at])[at]
            while high - low > _PROBE:
                middle = (low + high) // 2
                found = self._first_number(consumer, at, stream, middle, high)
                if found is None or found > number:
                    high = middle
                else:
                    low = middle
            return low
        except (errors.KafkaError, OSError) as error:
            self._close()
            raise FeedUnavailable(f"no place was found for {stream} {number} in {self._topic}: {error!r}") from error

    def _first_number(
        self, consumer: FeedConsumer, at: TopicPartition, stream: str, begin: int, end: int
    ) -> int | None:
        """The first number of a source stream from an offset on; None if it has none before `end`."""
        for records in _polls(consumer, at, begin, min(end, begin + self._records_max), time.monotonic() + SEARCH_S):
            for record in records:
                try:
                    found = decode_either(record.key, record.headers, record.value)
                except FeedRecordError:
                    continue
                if found.stream == stream:
                    return found.sequence
        return None

    def _open(self) -> FeedConsumer:
        if self._consumer is None:
            self._consumer = FeedConsumer(self._brokers, self._options, self._connect_s)
        return self._consumer

    def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class _Scan:
    """One search."""

    def __init__(self, consumer: FeedConsumer, topic: str, wanted: Search, records_max: int) -> None:
        self._consumer, self._wanted = consumer, wanted
        self._at = TopicPartition(topic, wanted.partition)
        self._left = records_max
        self._until = time.monotonic() + SEARCH_S
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for stream, first, last in wanted.ranges:
            self._ranges.setdefault(stream, []).append((first, last))
        self._last = {stream: max(last for _, last in ranges) for stream, ranges in self._ranges.items()}
        self._lowest: dict[str, int] = {}
        self._highest: dict[str, int] = {}
        self._copies: list[FeedMessage] = []

    def run(self) -> SearchResult:
        kafka, at = self._consumer.kafka, self._at
        begin: int = kafka.beginning_offsets([at])[at]
        end: int = kafka.end_offsets([at])[at]
        found = kafka.offsets_for_times({at: self._wanted.append_ms})[at]
        start = end if found is None else max(begin, found.offset)
        ended = self._read(start, end)
        step = _STEP
        while start > begin and not self._is_early_enough() and self._left > 0:
            before, start, step = start, max(begin, start - step), step * _GROWTH
            if not self._read(start, before):
                break
        is_early = start == begin or self._is_early_enough()
        reached = [one for one in self._wanted.ranges if is_early and self._highest.get(one[0], -1) > one[2]]
        self._copies.sort(key=lambda one: (one.stream, one.sequence, one.part))
        return SearchResult(self._wanted, self._copies, reached, ended=ended and is_early)

    def _read(self, start: int, end: int) -> bool:
        """Whether all between was read; stops once it is beyond all that is wanted."""
        position = start
        for records in _polls(self._consumer, self._at, start, end, self._until):
            self._take(records)
            position = records[-1].offset + 1
            self._left -= len(records)
            if self._left <= 0 or self._is_beyond():
                break
        return position >= end or self._is_beyond()

    def _take(self, records: list[Any]) -> None:
        for record in records:
            try:
                found = decode_either(record.key, record.headers, record.value)
            except FeedRecordError:
                continue
            ranges = self._ranges.get(found.stream)
            if ranges is None:
                continue
            is_message = isinstance(found, FeedMessage)
            beyond = found.sequence if is_message else found.sequence + 1
            self._highest[found.stream] = max(beyond, self._highest.get(found.stream, -1))
            self._lowest[found.stream] = min(beyond, self._lowest.get(found.stream, beyond))
            if isinstance(found, FeedMessage) and any(first <= found.sequence <= last for first, last in ranges):
                self._copies.append(found)

    def _is_early_enough(self) -> bool:
        """Whether it has begun at or before the first number that is wanted, of each source stream."""
        return all(
            stream in self._lowest and self._lowest[stream] <= min(first for first, _ in ranges)
            for stream, ranges in self._ranges.items()
        )

    def _is_beyond(self) -> bool:
        return all(self._highest.get(stream, -1) > last for stream, last in self._last.items())


def _polls(consumer: FeedConsumer, at: TopicPartition, start: int, end: int, until: float) -> Iterator[list[Any]]:
    """The records of a partition from `start` to before `end`, as they come; fewer after the time `until`."""
    if start >= end:
        return
    consumer.kafka.assign([])  # forgets what an earlier search has fetched
    consumer.kafka.assign([at])
    consumer.kafka.seek(at, start)
    while time.monotonic() < until:
        for records in consumer.kafka.poll(_POLL_MS).values():
            inside = [one for one in records if one.offset < end]
            if inside:
                yield inside
        if consumer.kafka.position(at) >= end:
            return
