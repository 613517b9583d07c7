"""What the gateway needs from Kafka: produce with a callback, consume in batches on the event loop."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from confluent_kafka import KafkaError

from gateway.partition_reader import OnRead, PartitionReader
from gateway.record import Record
from gateway.topic_follower import Following
from schemas.envelope import Headers

OnDone = Callable[[KafkaError | None, Record], None]
OnRecords = Callable[[list[Record]], asyncio.Future[None] | None]
"""Takes a batch; returns a future that is done when the whole batch is applied, or None if it already is."""


class Bus(Protocol):
    """The contract of :mod:`gateway.kafka_bus`, and of its peer in memory (:mod:`gateway.memory_bus`)."""

    def produce(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers | None, on_done: OnDone
    ) -> bool:
        """Sends a record. Calls `on_done(error, message)` on the loop once it is stored or never can be; `message` is
        valid only without error. A record that is too large, or one too many in flight, fails too (KafkaError
        MSG_SIZE_TOO_LARGE, _QUEUE_FULL); that call may precede the calls of earlier records. Returns False
        with _QUEUE_FULL, though `on_done` is called later. Never raises."""
        ...

    def produce_all(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        on_done: OnDone,
        headers: Headers | None = None,
    ) -> None:
        """Sends records (key, value; None is a tombstone) to one partition, in order, each with the same headers; at a
        lower cost than one by one if there are none. Calls `on_done` once, as for the last record: after all are
        stored, or with an error if one never can be. No record may be larger than the broker accepts."""
        ...

    async def assign(self, positions: dict[tuple[str, int], int]) -> None:
        """Consumes each (topic, partition) from this offset on (below 0: the beginning), consumed already or not."""
        ...

    async def unassign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Consumes these partitions no more. Fetched records may still arrive until this returns, and none later."""
        ...

    async def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset after the last record, by partition."""
        ...

    async def read(self, topic: str, start: dict[int, int], on_record: Callable[[Record], None]) -> dict[int, int]:
        """Passes every record from `start` (offset by partition) to the current end; returns the end by partition."""
        ...

    async def first_offsets(self, topic: str, start: dict[int, int]) -> dict[int, int]:
        """Where the first record at or behind each of `start` (offset by partition) stands; the current end if there is
        none: what was there is deleted, or is no record for readers."""
        ...

    def follow(self, positions: dict[tuple[str, int], int], on_records: Callable[[list[Record]], None]) -> Following:
        """Calls `on_records` on the loop with what comes to each (topic, partition) from the given offset on, until the
        bus ends. Nothing pauses this, also not `OnRecords` of the other consumer; so it is for topics with few
        records. Whoever begins without partitions pays nothing before the first is added, and adds and removes some in
        milliseconds."""
        ...

    def reader(self, on_read: OnRead) -> PartitionReader:
        """A further consumer, for partitions that come and go, until it is stopped or the bus ends. It waits for
        `on_read`, and nobody waits for it."""
        ...
