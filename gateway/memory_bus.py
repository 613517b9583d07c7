"""Kafka in memory: topics in lists, and a bus over them with the contract of :class:`gateway.bus.Bus`.

It ships for tests and experiments. Records can be held back before they are stored, or their acknowledgements after
that; topics can be made to fail; and a bus can crash, which to its broker looks like a killed gateway.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from gateway.bus import OnDone, OnRecords
from gateway.errors import BusError
from gateway.partition_reader import OnRead, Read
from gateway.record import Record
from gateway.topic_follower import Following
from schemas.envelope import Headers
from schemas.topics import LARGEST_RECORD

_BATCH = 500
_APPEND_TIME = 2  # TIMESTAMP_LOG_APPEND_TIME

TopicPartition = tuple[str, int]


class MemoryRecord:
    """A record like :class:`gateway.bus.Record`; `offset` is -1 and there is no time until it is stored. Who
    reads does not get one that is removed."""

    __slots__ = ("_at_ms", "_headers", "_key", "_offset", "_topic_partition", "_value", "is_removed")

    def __init__(
        self, topic_partition: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers | None
    ) -> None:
        self._topic_partition = topic_partition
        self._key = key
        self._value = value
        self._headers = headers
        self._offset = -1
        self._at_ms = -1
        self.is_removed = False

    def topic(self) -> str:
        return self._topic_partition[0]

    def partition(self) -> int:
        return self._topic_partition[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return _APPEND_TIME, self._at_ms

    def stored_at(self, offset: int, at_ms: int) -> None:
        self._offset, self._at_ms = offset, at_ms


class MemoryBroker:
    """What survives the crash of a bus: the records of every partition. `clock` gives seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self.partitions: defaultdict[TopicPartition, list[MemoryRecord]] = defaultdict(list)

    def append(self, record: MemoryRecord) -> None:
        """Stores a record and notifies the partition's consumers."""
        records = self.partitions[record.topic(), record.partition()]
        before = records[-1].timestamp()[1] if records else 0
        record.stored_at(len(records), max(before, int(self._clock() * 1000)))
        records.append(record)
        for listener in list(self._listeners):
            listener()

    def compact(self, topic: str, partition: int) -> None:
        """Removes all records but the last of each key, and tombstones, as if they were as old as that takes."""
        records = self.partitions[topic, partition]
        last = {record.key(): record for record in records}
        for record in records:
            record.is_removed = record is not last[record.key()] or record.value() is None

    def delete(self, topic: str, partition: int, before: int | None = None) -> None:
        """Removes the records before an offset, or all, as if they were older than the topic keeps any."""
        for record in self.partitions[topic, partition][:before]:
            record.is_removed = True

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)


class _Sent(NamedTuple):
    record: MemoryRecord
    on_done: OnDone
    error: KafkaError | None = None


class _Follower:
    """The next offset of each partition that is followed, and who takes its records. See
    :class:`gateway.bus.Following`."""

    def __init__(
        self,
        positions: Mapping[TopicPartition, int],
        on_records: Callable[[list[Record]], None],
        schedule: Callable[[], None],
    ) -> None:
        self.positions = dict(positions)
        self.on_records = on_records
        self._schedule = schedule

    async def add(self, positions: Mapping[TopicPartition, int]) -> None:
        await asyncio.sleep(0)
        if twice := self.positions.keys() & positions.keys():
            raise BusError(f"followed already: {sorted(twice)}")
        self.positions |= positions
        self._schedule()

    async def remove(self, partitions: Iterable[TopicPartition]) -> None:
        listed = list(partitions)
        await asyncio.sleep(0)
        for topic_partition in listed:
            self.positions.pop(topic_partition, None)


class MemoryPartitionReader:
    """See :class:`gateway.partition_reader.PartitionReader`."""

    def __init__(self, on_read: OnRead, schedule: Callable[[], None]) -> None:
        self._on_read = on_read
        self._schedule = schedule
        self._positions: dict[TopicPartition, int] = {}
        self._tokens: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._applying: asyncio.Future[Any] | None = None

    def assign(self, positions: Mapping[TopicPartition, int], token: int) -> None:
        for topic_partition, offset in positions.items():
            self._positions[topic_partition], self._tokens[topic_partition] = offset, token
            self._ends.pop(topic_partition, None)
        self._schedule()

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in partitions:
            self._positions.pop(topic_partition, None)

    async def stop(self, timeout_s: float) -> None:
        self._positions.clear()

    def turn(self, partitions: Mapping[TopicPartition, list[MemoryRecord]]) -> bool:
        """Hands over what there is; whether that was anything."""
        if self._applying is not None:
            return False
        found: dict[TopicPartition, Read] = {}
        for topic_partition, position in self._positions.items():
            log = partitions.get(topic_partition, [])
            if position > len(log):
                position = 0
            records: list[Record] = [r for r in log[position : position + _BATCH] if not r.is_removed]
            self._positions[topic_partition] = min(position + _BATCH, len(log))
            if records or self._ends.get(topic_partition) != len(log):
                self._ends[topic_partition] = len(log)
                found[topic_partition] = Read(self._tokens[topic_partition], records, len(log))
        if found:
            self._applying = self._on_read(found)
            if self._applying is not None:
                self._applying.add_done_callback(self._applied)
        return bool(found)

    def _applied(self, _: asyncio.Future[Any]) -> None:
        self._applying = None
        self._schedule()


class MemoryBus:
    """A bus over a MemoryBroker. All work happens through `loop.call_soon`, never during a call of a method.

    `held_stores` and `held_acks` are topics whose records are not stored, or stored but not acknowledged, until the
    topic is removed and `release` called; `held_follows` are topics whose records followers do not get until then.
    `refused` maps a topic to the error that its records get. More than `capacity` records in flight are refused.
    """

    def __init__(self, broker: MemoryBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._on_records: OnRecords | None = None
        self._unstored: defaultdict[TopicPartition, deque[_Sent]] = defaultdict(deque)
        self._unacknowledged: defaultdict[TopicPartition, deque[_Sent]] = defaultdict(deque)
        self._positions: dict[TopicPartition, int] = {}
        self._followers: list[_Follower] = []
        self._readers: list[MemoryPartitionReader] = []
        self._applying: asyncio.Future[None] | None = None
        self._is_scheduled = False
        self._is_dead = False
        self.held_stores: set[str] = set()
        self.held_acks: set[str] = set()
        self.held_follows: set[str] = set()
        self.refused: dict[str, KafkaError] = {}
        self.capacity: int | None = None
        self.is_consuming = True
        broker.listen(self._schedule)

    @property
    def in_flight(self) -> int:
        """Records not acknowledged yet."""
        return sum(map(len, (*self._unstored.values(), *self._unacknowledged.values())))

    @property
    def reading(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that is consumed."""
        return dict(self._positions)

    def start(self, on_records: OnRecords) -> None:
        self._on_records = on_records

    def release(self) -> None:
        """Continues with records that are no longer held back."""
        self._schedule()

    def crash(self, stored: int = 0) -> None:
        """Simulates the user of this bus being killed: no more callbacks. Of the records not yet stored, the oldest
        `stored` of each partition are still stored."""
        self._is_dead = True
        self._broker.forget(self._schedule)
        for waiting in self._unstored.values():
            for sent in list(waiting)[:stored]:
                self._broker.append(sent.record)
        self._unstored.clear()
        self._unacknowledged.clear()
        self._positions.clear()
        self._followers.clear()
        self._readers.clear()

    def produce(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers | None, on_done: OnDone
    ) -> bool:
        topic_partition = (topic, partition)
        record, refusal = MemoryRecord(topic_partition, key, value, headers), None
        if len(value or b"") > LARGEST_RECORD:
            refusal = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        elif self.capacity is not None and self.in_flight >= self.capacity:
            refusal = KafkaError(KafkaError._QUEUE_FULL)
        if refusal is not None:
            self._loop.call_soon(self._refuse, _Sent(record, on_done, refusal))
            return refusal.code() != KafkaError._QUEUE_FULL
        self._unstored[topic_partition].append(_Sent(record, on_done))
        self._schedule()
        return True

    def produce_all(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        on_done: OnDone,
        headers: Headers | None = None,
    ) -> None:
        errors: list[KafkaError] = []

        def done(is_last: bool, error: KafkaError | None, record: Record) -> None:
            if error is not None:
                errors.append(error)
            if is_last:
                on_done(errors[0] if errors else None, record)

        for number, (key, value) in enumerate(records, 1):
            self.produce(topic, partition, key, value, headers, partial(done, number == len(records)))

    def _refuse(self, sent: _Sent) -> None:
        if not self._is_dead:
            sent.on_done(sent.error, sent.record)

    async def assign(self, positions: dict[TopicPartition, int]) -> None:
        await asyncio.sleep(0)
        self._positions |= {topic_partition: max(0, offset) for topic_partition, offset in positions.items()}
        self._schedule()

    async def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        listed = list(partitions)
        await asyncio.sleep(0)
        for topic_partition in listed:
            self._positions.pop(topic_partition, None)
        if self._applying is not None:
            await asyncio.wait([self._applying])

    async def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        await asyncio.sleep(0)
        return {p: len(self._broker.partitions[topic, p]) for p in range(partitions)}

    async def read(self, topic: str, start: dict[int, int], on_record: Callable[[Record], None]) -> dict[int, int]:
        ends = {p: len(self._broker.partitions[topic, p]) for p in start}
        await asyncio.sleep(0)
        for partition, offset in start.items():
            for record in self._broker.partitions[topic, partition][max(0, offset) : ends[partition]]:
                if not record.is_removed:
                    on_record(record)
        return ends

    async def first_offsets(self, topic: str, start: dict[int, int]) -> dict[int, int]:
        await asyncio.sleep(0)
        logs = {p: self._broker.partitions[topic, p] for p in start}
        left = {p: (r.offset() for r in logs[p][max(0, offset) :] if not r.is_removed) for p, offset in start.items()}
        return {p: next(offsets, len(logs[p])) for p, offsets in left.items()}

    def follow(self, positions: dict[TopicPartition, int], on_records: Callable[[list[Record]], None]) -> Following:
        follower = _Follower(positions, on_records, self._schedule)
        self._followers.append(follower)
        self._schedule()
        return follower

    def reader(self, on_read: OnRead) -> MemoryPartitionReader:
        self._readers.append(MemoryPartitionReader(on_read, self._schedule))
        return self._readers[-1]

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_dead:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """One step: acknowledges stored records, stores sent records, delivers consumable records."""
        self._is_scheduled = False
        if self._is_dead:
            return
        acknowledged = [
            sent
            for topic_partition, waiting in self._unacknowledged.items()
            if topic_partition[0] not in self.held_acks
            for sent in _drained(waiting)
        ]
        for topic_partition, waiting in self._unstored.items():
            if topic_partition[0] not in self.held_stores:
                for sent in _drained(waiting):
                    self._store(topic_partition, sent)
        for sent in acknowledged:
            if not self._is_dead:
                sent.on_done(sent.error, sent.record)
        held = self.held_follows
        followed = [(self._batch(follower.positions, held), follower.on_records) for follower in self._followers]
        for records, on_records in followed:
            if records:
                on_records(records)
        can_take = self.is_consuming and not self._is_dead and self._applying is None
        batch = self._batch(self._positions) if can_take else []
        if batch and self._on_records is not None:
            self._applying = self._on_records(batch)
            if self._applying is not None:
                self._applying.add_done_callback(self._applied)
        have_read = [reader.turn(self._broker.partitions) for reader in list(self._readers)]
        has_come = batch or any(have_read) or any(records for records, _ in followed)  # there may be more
        if has_come or any(
            waiting
            for topic_partition, waiting in self._unacknowledged.items()
            if topic_partition[0] not in self.held_acks
        ):
            self._schedule()

    def _applied(self, applied: asyncio.Future[None]) -> None:
        self._applying = None
        self._schedule()

    def _store(self, topic_partition: TopicPartition, sent: _Sent) -> None:
        error = self.refused.get(topic_partition[0])
        if error is None:
            self._broker.append(sent.record)
        self._unacknowledged[topic_partition].append(sent._replace(error=error))

    def _batch(self, positions: dict[TopicPartition, int], held: Collection[str] = ()) -> list[Record]:
        """The next records, but none of the topics `held`, and moves `positions` behind them."""
        batch: list[Record] = []
        for topic_partition, position in positions.items():
            if topic_partition[0] in held:
                continue
            log = self._broker.partitions[topic_partition]
            batch += [record for record in log[position : position + _BATCH] if not record.is_removed]
            positions[topic_partition] = min(position + _BATCH, len(log))
        return batch


def _drained(waiting: deque[_Sent]) -> list[_Sent]:
    sent = list(waiting)
    waiting.clear()
    return sent
