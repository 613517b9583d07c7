"""Reporting how far instructions have come: outcomes and relinquishes on `progress` (R4)."""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.bus import Bus
from gateway.home.messages import Held, Message
from schemas.envelope import Instruction
from schemas.events import Delivery, ProgressEvent, encode
from schemas.identity import partition_of


class _Epoch:
    """Events produced between two flushes: how many are not stored yet, and who waits for them."""

    __slots__ = ("_on_error", "flushed", "outstanding")

    def __init__(self, on_error: Callable[[Any], None]) -> None:
        self.outstanding = 0
        self.flushed: asyncio.Event | None = None
        self._on_error = on_error

    def done(self, error: Any, _record: Any) -> None:
        if error is not None:
            self._on_error(error)
            return
        self.outstanding -= 1
        if not self.outstanding and self.flushed is not None:
            self.flushed.set()


class ProgressReporter:
    """Writes progress events; `flush` waits until all written before are stored.

    Delivery semantics: an event may be written again after a crash, never lost once flushed.
    """

    def __init__(self, bus: Bus, topic: str, partitions: int, on_error: Callable[[Any], None]) -> None:
        self._bus = bus
        self._topic = topic
        self._partitions = partitions
        self._on_error = on_error
        self._epoch = _Epoch(on_error)
        self._earlier: list[_Epoch] = []

    def relinquish(self, held: Held, *, replayed: bool = False) -> None:
        """The home has finished all instructions it holds for the message."""
        for number, instruction in enumerate(held.instructions):
            deliveries = [] if number else held.deliveries
            self._write("relinquish", held.message, held.shard, instruction, deliveries, replayed or number > 0)

    def outcome(
        self, message: Message, shard: int, instructions: list[Instruction], deliveries: list[Delivery]
    ) -> None:
        """Some recipients are finished; others may follow."""
        self._write("outcome", message, shard, instructions[0] if instructions else None, deliveries, False)

    async def flush(self) -> None:
        """Returns once every event written so far is stored."""
        if self._epoch.outstanding:
            self._epoch.flushed = asyncio.Event()
            self._earlier.append(self._epoch)
            self._epoch = _Epoch(self._on_error)
        for epoch in list(self._earlier):
            if epoch.flushed is not None and epoch.outstanding:
                await epoch.flushed.wait()
        self._earlier = [epoch for epoch in self._earlier if epoch.outstanding]

    def _write(
        self,
        kind: Any,
        message: Message,
        shard: int,
        instruction: Instruction | None,
        deliveries: list[Delivery],
        replayed: bool,
    ) -> None:
        event = ProgressEvent(
            kind=kind,
            id=message.id,
            partition=message.partition,
            offset=message.offset,
            appended_ms=message.appended,
            scope=instruction.scope if instruction else "routed",  # type: ignore[arg-type]
            shard=shard,
            number=instruction.number if instruction else None,
            limit=instruction.limit if instruction else None,
            deliveries=deliveries,
            replayed=replayed,
        )
        self._epoch.outstanding += 1
        partition = partition_of(message.id, self._partitions)
        self._bus.produce(self._topic, partition, message.id.encode(), encode(event), None, self._epoch.done)
