"""Reporting how far instructions have come: outcomes and relinquishes on `progress` (R4).

Where gateways share shards, a home that has lost its shard without knowing it may still read `egress`. It knows nothing
of sessions that have begun at the next home. So it could relinquish an instruction for which those still wait, and the
message would count as complete too early. Readers of `progress` know no epochs. So the events of a shard that were
gathered are sent only after a barrier (:mod:`gateway.shard.promises`) that was written after them: then the home had
the shard when it decided them, and the next home, which reads all that was stored before its fence, decides alike or
repeats a delivery. One barrier serves all events of some milliseconds. What a home has gathered when it is lost is
dropped: the next one reports it again.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from msgspec import UNSET

from gateway.bus import Bus
from gateway.shard.messages import Message, PendingMessage
from schemas.envelope import RECEIPT_FLAG, Instruction
from schemas.events import ProgressEvent, RecipientOutcome, encode
from schemas.identity import partition_of
from schemas.origin import origin_of

_GATHER_S = 0.01
"""Nobody waits for an event but a checkpoint, which sends what is gathered; twenty in a request to Kafka cost a seventh
of what they cost one by one."""

_AT_ONCE = 1_000
"""Events that are sent together at most: sending many takes long."""

DELIVERIES_AT_MOST = 1_000
"""In one event."""

_EVENT_BYTES = 800_000
"""Of the deliveries in one event, so that no broker refuses it however long the identifiers of clients are."""

_FEW = 8
"""Deliveries that fit in any case: a client's identifier has 16 KiB at most (`client_id_bytes`)."""


_Batches = defaultdict[int, list[tuple[bytes, bytes]]]
"""Records by partition."""


class _Epoch:
    """Events produced between two flushes: how many are not stored yet, and who waits for them."""

    __slots__ = ("_on_error", "flushed", "outstanding")

    def __init__(self, on_error: Callable[[Any], None]) -> None:
        self.outstanding = 0
        self.flushed: asyncio.Event | None = None
        self._on_error = on_error

    def done(self, events: int, error: Any, _record: Any) -> None:
        if error is not None:
            self._on_error(error)
            return
        self.outstanding -= events
        if not self.outstanding and self.flushed is not None:
            self.flushed.set()


class Guard(Protocol):
    """Says whether the home of a shard has it: :class:`gateway.shard.promises.Promises`."""

    @property
    def are_read_back(self) -> bool:
        """Whether gateways share shards."""
        ...

    def after_barrier(self, action: Callable[[], None]) -> None:
        """Runs `action` once it is known that the shard was the home's until now; never if it was not."""
        ...

    def when_lost(self, action: Callable[[], None]) -> None:
        """Runs `action` when no more actions will run."""
        ...


class _Events:
    """Those of one shard, or of all that have no `guard`. `gathered` are not sent yet, `waiting` are batches that wait
    for their barriers, in order, `earlier` epochs that somebody waits for."""

    def __init__(self, on_error: Callable[[Any], None], guard: Guard | None = None) -> None:
        self.guard = guard
        self.epoch = _Epoch(on_error)
        self.earlier: list[_Epoch] = []
        self.gathered: _Batches = defaultdict(list)
        self.waiting: deque[tuple[_Epoch, _Batches]] = deque()
        self.is_lost = False


class ProgressReporter:
    """Writes progress events, those of some milliseconds together; `flush` waits until those of a shard are stored.

    Delivery semantics: an event may be written again after a crash, never lost once flushed.
    """

    def __init__(self, bus: Bus, topic: str, partitions: int, on_error: Callable[[Any], None]) -> None:
        self._bus = bus
        self._topic = topic
        self._partitions = partitions
        self._on_error = on_error
        self._unguarded = _Events(on_error)
        self._guarded: dict[int, _Events] = {}
        self._timer: asyncio.TimerHandle | None = None

    def guard(self, shard: int, guard: Guard) -> None:
        """A home begins: from now on events of its shard are sent only while it has the shard, if gateways share
        shards."""
        if guard.are_read_back:
            events = self._guarded[shard] = _Events(self._on_error, guard)
            guard.when_lost(lambda: self._lost(events))

    def relinquish(self, pending: PendingMessage, *, replayed: bool = False) -> None:
        """The home has finished all instructions it holds for the message."""
        last = self._outcomes_but_last(pending.message, pending.shard, pending.instructions, pending.outcomes)
        for number, instruction in enumerate(pending.instructions):
            deliveries = [] if number else last
            self._write("relinquish", pending.message, pending.shard, instruction, deliveries, replayed or number > 0)

    def relinquish_later(self, message: Message, shard: int, instructions: list[Instruction]) -> None:
        """Instructions for a message that nobody holds any more; it may have been relinquished before."""
        self.relinquish(PendingMessage(message, shard, -1, 0, instructions), replayed=True)

    def outcome(
        self, message: Message, shard: int, instructions: list[Instruction], deliveries: list[RecipientOutcome]
    ) -> None:
        """Some recipients are finished; others may follow."""
        last = self._outcomes_but_last(message, shard, instructions, deliveries)
        self._write("outcome", message, shard, instructions[0] if instructions else None, last, False)

    async def flush(self, shard: int) -> None:
        """Returns once every event of the shard that was written so far is stored; without guards, of all shards."""
        events = self._of(shard)
        self._send(events)
        if events.epoch.outstanding:
            events.epoch.flushed = asyncio.Event()
            events.earlier.append(events.epoch)
            events.epoch = _Epoch(self._on_error)
        for epoch in list(events.earlier):
            if epoch.flushed is not None and epoch.outstanding:
                await epoch.flushed.wait()
        events.earlier = [epoch for epoch in events.earlier if epoch.outstanding]

    def _of(self, shard: int) -> _Events:
        return self._guarded.get(shard, self._unguarded)

    def _outcomes_but_last(
        self, message: Message, shard: int, instructions: list[Instruction], deliveries: list[RecipientOutcome]
    ) -> list[RecipientOutcome]:
        """Writes more deliveries than one event takes, and returns those that are left for the last event."""
        if len(deliveries) <= _FEW:
            return deliveries
        *surplus, last = portions(deliveries)
        for portion in surplus:
            self._write("outcome", message, shard, instructions[0] if instructions else None, portion, False)
        return last

    def _send_all(self) -> None:
        self._timer = None
        for events in (self._unguarded, *self._guarded.values()):
            self._send(events)

    def _send(self, events: _Events) -> None:
        """Sends what was gathered."""
        if not events.gathered:
            return
        batches, events.gathered = events.gathered, defaultdict(list)
        if events.guard is None:
            self._produce(events.epoch, batches)
        else:
            events.waiting.append((events.epoch, batches))
            events.guard.after_barrier(lambda: self._produce(*events.waiting.popleft()))

    def _produce(self, epoch: _Epoch, batches: _Batches) -> None:
        for partition, records in batches.items():
            self._bus.produce_all(self._topic, partition, records, partial(epoch.done, len(records)))

    def _lost(self, events: _Events) -> None:
        """Nobody waits for what is never sent."""
        events.is_lost = True
        waiting = [*events.waiting, (events.epoch, events.gathered)]
        events.waiting.clear()
        events.gathered = defaultdict(list)
        for epoch, batches in waiting:
            epoch.done(sum(map(len, batches.values())), None, None)

    def _write(
        self,
        kind: Any,
        message: Message,
        shard: int,
        instruction: Instruction | None,
        deliveries: list[RecipientOutcome],
        replayed: bool,
    ) -> None:
        events = self._of(shard)
        if events.is_lost:
            return
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
            offered_us=message.offered_us or None,
            origin=origin_of(message.topic, message.flags),
            is_awaited=True if RECEIPT_FLAG in message.flags and message.partition >= 0 else UNSET,
        )
        events.epoch.outstanding += 1
        gathered = events.gathered[partition_of(message.id, self._partitions)]
        gathered.append((message.id.encode(), encode(event)))
        if len(gathered) >= _AT_ONCE:
            self._send(events)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self._send_all)


def portions(deliveries: list[RecipientOutcome]) -> list[list[RecipientOutcome]]:
    """The deliveries in as many lists as it takes for each to fit one event; at least one."""
    found: list[list[RecipientOutcome]] = [[]]
    left = _EVENT_BYTES
    for delivery in deliveries:
        size = 6 * len(delivery.client) + 120  # as JSON a character has six bytes at most
        if size > left or len(found[-1]) == DELIVERIES_AT_MOST:
            found.append([])
            left = _EVENT_BYTES
        found[-1].append(delivery)
        left -= size
    return found
