"""Reads partitions that come and go with a consumer of its own, in batches, no faster than they are taken.

For what is followed at leisure: batches are collected for a tenth of a second, since the fewer there are the less they
cost. Whoever assigns a partition gives a token, which comes with all that is read for that assignment: so what was
still on its way for an earlier one cannot be taken for it.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from gateway.errors import BusError
from gateway.record import Record
from schemas.topics import NO_GROUP

_EVERY_S = 0.1
_MOST = 2_000
_AHEAD = 2
_FETCHED_KB = 16 << 10
_ASK_S = 1.0


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
        self._unsure: dict[tuple[str, int], tuple[int, int]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._consume, name="kafka-reader", daemon=True)
        self._thread.start()

    def assign(self, positions: Mapping[tuple[str, int], int], token: int) -> None:
        assigned = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]

        def run(consumer: Consumer) -> None:
            again = [one for one in assigned if (one.topic, one.partition) in self._tokens]
            if again:
                consumer.incremental_unassign(again)
            consumer.incremental_assign(assigned)
            for one, offset in positions.items():
                self._tokens[one] = token
                self._ends.pop(one, None)
                self._unsure[one] = offset, -1

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

    def _found(self, consumer: Consumer, messages: Iterable[Any]) -> dict[tuple[str, int], Read]:
        records: dict[tuple[str, int], list[Record]] = {}
        for message in messages:
            if message.error() is None:
                records.setdefault((message.topic(), message.partition()), []).append(cast(Record, message))
        found: dict[tuple[str, int], Read] = {}
        for partition, token in self._tokens.items():
            of_partition = records.get(partition, [])
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            if end >= 0 and partition in self._unsure:
                end = self._sure_end(consumer, partition, end)
            if of_partition:
                end = max(end, of_partition[-1].offset() + 1)
            if of_partition or (end >= 0 and end != self._ends.get(partition)):
                found[partition] = Read(token, of_partition, end)
                self._ends[partition] = end
        return found

    def _sure_end(self, consumer: Consumer, partition: tuple[str, int], cached: int) -> int:
        """The end of a partition that was assigned a while ago; -1 if it is not known. The consumer still has the end
        from an earlier assignment until it has fetched anew. One before the present position may be such a one, or the
        topic is another one by now: only the broker knows."""
        position, asked = self._unsure[partition]
        if cached >= position:
            del self._unsure[partition]
            return cached
        if asked < 0:
            try:
                found = consumer.get_watermark_offsets(TopicPartition(*partition), timeout=_ASK_S)
            except KafkaException:
                found = None
            if found is None:  # it does not answer
                return -1
            asked = found[1]
            self._unsure[partition] = position, asked
        return asked

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
