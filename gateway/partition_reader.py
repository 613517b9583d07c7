"""Reads partitions that come and go with a consumer of its own, in batches, no faster than they are taken.

For what is followed at leisure: batches are collected for a tenth of a second, since the fewer there are the less they
cost. Whoever assigns a partition gives a token, which comes with all that is read for that assignment: so what was
still on its way for an earlier one cannot be taken for it.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from gateway.errors import BusError
from gateway.record import Record
from gateway.topic_reader import end_offsets
from schemas.topics import NO_GROUP

_EVERY_S = 0.1
_MOST = 2_000
_AHEAD = 2
_ANSWER_S = 2.0
_FETCHED_KB = 16 << 10


class Read(NamedTuple):
    """New records of one partition, perhaps none. `token`: see :meth:`PartitionReader.assign`; `end`: the offset behind
    the partition's last record, as the broker has last said."""

    token: int
    records: list[Record]
    end: int


OnRead = Callable[[dict[tuple[str, int], Read]], asyncio.Future[Any] | None]
"""Takes what was read, by (topic, partition): those with new records or another end. Returns a future that is done when
there is capacity for more, or None if there is."""


class PartitionReader(Protocol):
    """Nothing raises; what ends the consumer ends the bus."""

    def assign(self, positions: Mapping[tuple[str, int], int], token: int) -> None:
        """Reads each (topic, partition) from the given offset on; what comes of them has this token. One that the
        broker does not have any more, or not yet: from the beginning."""
        ...

    def unassign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads these no more. What is on its way still comes."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Nothing comes afterwards."""
        ...


class KafkaPartitionReader:
    """A :class:`PartitionReader` with a thread, which waits while nothing is assigned. `on_read` runs on the loop; what
    it raises, and what ends the consumer, goes to `on_fatal`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        loop: asyncio.AbstractEventLoop,
        on_read: OnRead,
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._on_read = on_read
        self._on_fatal = on_fatal
        self._commands: queue.SimpleQueue[Callable[[Consumer], None] | None] = queue.SimpleQueue()
        self._ahead = threading.Semaphore(_AHEAD)
        self._tokens: dict[tuple[str, int], int] = {}  # the thread's, like `_ends`
        self._ends: dict[tuple[str, int], int] = {}
        self._begun: dict[tuple[str, int], tuple[int | None, int]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._consume, name="kafka-reader", daemon=True)
        self._thread.start()

    def assign(self, positions: Mapping[tuple[str, int], int], token: int) -> None:
        assigned = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]

        def run(consumer: Consumer) -> None:
            again = [one for one in assigned if (one.topic, one.partition) in self._tokens]
            if again:
                consumer.incremental_unassign(again)
            ends = self._ask(consumer, positions)
            for one in positions:
                self._begun[one] = _remembered_end(consumer, one), ends.get(one, -1)
                self._tokens[one] = token
                self._ends.pop(one, None)
            consumer.incremental_assign(assigned)

        self._commands.put(run)

    def unassign(self, partitions: Iterable[tuple[str, int]]) -> None:
        listed = list(partitions)

        def run(consumer: Consumer) -> None:
            known = [one for one in listed if self._tokens.pop(one, None) is not None]
            if known:
                consumer.incremental_unassign([TopicPartition(topic, partition) for topic, partition in known])

        self._commands.put(run)

    async def stop(self, timeout_s: float) -> None:
        self._stopping = True
        self._commands.put(None)
        self._ahead.release()
        await asyncio.to_thread(self._thread.join, timeout_s)

    def _consume(self) -> None:
        consumer = Consumer(
            dict(self._settings)
            | {
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": 50,
                "queued.max.messages.kbytes": _FETCHED_KB,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            while not self._stopping:
                while not self._tokens or not self._commands.empty():
                    command = self._commands.get()
                    if command is None:
                        return
                    command(consumer)
                found = self._found(consumer, consumer.consume(_MOST, _EVERY_S))
                if found:
                    self._ahead.acquire()
                    self._loop.call_soon_threadsafe(self._hand_over, found)
        except Exception as error:
            if not self._stopping:
                self._loop.call_soon_threadsafe(self._on_fatal, BusError(f"a Kafka consumer failed: {error}"))
        finally:
            consumer.close()

    @staticmethod
    def _ask(consumer: Consumer, positions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Where partitions end; nothing if Kafka does not answer. The consumer knows the topics then, and fetches at
        once (:mod:`gateway.known_topics`)."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in positions:
            by_topic.setdefault(topic, []).append(partition)
        found: dict[tuple[str, int], int] = {}
        with suppress(KafkaException):
            for topic, partitions in by_topic.items():
                found |= {(topic, p): end for p, end in end_offsets(consumer, topic, partitions, _ANSWER_S).items()}
        return found

    def _end(self, consumer: Consumer, partition: tuple[str, int]) -> int:
        """Where a partition ends by what was fetched last. Until something is fetched, the consumer remembers what it
        was in an earlier assignment, and then what was asked for counts. Below 0 if that is not known."""
        end, (before, asked) = _remembered_end(consumer, partition), self._begun[partition]
        if end is not None and end != before:
            return end
        if asked < 0:
            asked = self._ask(consumer, [partition]).get(partition, -1)
            self._begun[partition] = before, asked
        return asked

    def _found(self, consumer: Consumer, messages: Iterable[Any]) -> dict[tuple[str, int], Read]:
        records: dict[tuple[str, int], list[Record]] = {}
        for message in messages:
            if message.error() is None:
                records.setdefault((message.topic(), message.partition()), []).append(cast(Record, message))
        found: dict[tuple[str, int], Read] = {}
        for partition, token in self._tokens.items():
            of_partition = records.get(partition, [])
            end = self._end(consumer, partition)
            if of_partition:
                end = max(end, of_partition[-1].offset() + 1)
            if of_partition or (end >= 0 and end != self._ends.get(partition)):
                found[partition] = Read(token, of_partition, end)
                self._ends[partition] = end
        return found

    def _hand_over(self, found: dict[tuple[str, int], Read]) -> None:
        applied: asyncio.Future[Any] | None = None
        try:
            if not self._stopping:
                applied = self._on_read(found)
        except Exception as error:
            self._on_fatal(error)
        if applied is None:
            self._ahead.release()
        else:
            applied.add_done_callback(lambda _: self._ahead.release())


def _remembered_end(consumer: Consumer, partition: tuple[str, int]) -> int | None:
    """What the consumer takes for the partition's end, None if it has never met the partition."""
    with suppress(KafkaException):
        return int(consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)[1])
    return None
