"""Reading `ingress` for subscriptions whose route is not in effect yet, so that they miss nothing.

The reader starts at the end of `ingress` before SUBACK, and ends once it has passed everything appended before the last
such route took effect. It first looks at the records just before that end, whose instructions may still be to come.
This is the reading; :mod:`gateway.shard.delivery_order` has the positions and says what waits for what.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.record import Record
from gateway.shard.delivery_order import DeliveryOrder
from gateway.shard.ingress_reader import IngressReader
from gateway.shard.window import WINDOW_SIZE

CLOCK_SLACK_MS = 2_000
"""How far this machine's clock may be ahead of the broker's or behind it."""


_SKEW = 256
"""By how many messages of one partition of `ingress` one shard's instructions may be ahead of another's."""


class IngressCatchUpReader:
    """Where and how long a shard's home reads `ingress`.

    Subscriptions whose route took effect by `done_ms` need the reader no more. `instructed_to` gives how far the
    instructions of a partition of `ingress` have come to any shard of this process. `spawn` starts a coroutine whose
    failure is fatal.
    """

    def __init__(
        self,
        order: DeliveryOrder,
        ingress: IngressReader,
        instructed_to: Callable[[int], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._order = order
        self._ingress = ingress
        self._instructed_to = instructed_to
        self._spawn = spawn
        self._until_ms = 0
        self._targets: dict[int, int] | None = None
        self._reread_to: dict[int, int] = {}
        self._paused: set[int] = set()
        self._was_at: dict[int, int] = {}
        self._lock = asyncio.Lock()
        self.done_ms = 0

    @property
    def is_reading(self) -> bool:
        return self._order.passed_to is not None

    def is_needed(self, effective_ms: int, now_ms: int) -> bool:
        """Whether messages sent from now on may still come before a route is in effect."""
        return effective_ms + CLOCK_SLACK_MS > now_ms

    def restore(self, done_ms: int) -> None:
        """Subscriptions effective by `done_ms` were done with in an earlier life of the home."""
        self.done_ms = done_ms

    def reread(self, ends: dict[int, int]) -> None:
        """What is before `ends`, where `ingress` ended when the home started, may have been read by an earlier life."""
        self._reread_to = ends

    def has_reread(self) -> bool:
        """Whether all that an earlier life of the home can have read has been read again."""
        return self._order.has_passed(self._reread_to)

    async def begin(self, direct_from: dict[int, int] | None = None) -> dict[int, int]:
        """Reads from now on (or from `direct_from`); returns from where, by partition. Call `hold_until` first: a
        reader that nobody needs ends by itself, at any moment."""
        async with self._lock:
            self._targets = None
            order = self._order
            if order.passed_to is None:
                direct_from = direct_from or await self._ingress.end_offsets()
                await self._start({p: self._look_back(p, offset) for p, offset in direct_from.items()}, direct_from)
                return dict(direct_from)
            start = {p: max(offset, order.read_to[p]) for p, offset in order.direct_from.items()}
            if self._paused:
                ends = await self._ingress.end_offsets()
                start |= {p: ends[p] for p in self._paused}
            return start

    async def resume(self, passed_to: dict[int, int], direct_from: dict[int, int]) -> None:
        """Reads on where an earlier life of the home was."""
        async with self._lock:
            await self._start(passed_to, direct_from)

    async def _start(self, passed_to: dict[int, int], direct_from: dict[int, int]) -> None:
        await self._ingress.read(self, passed_to, lambda: self._order.begin(passed_to, direct_from))

    def _look_back(self, partition: int, direct_from: int) -> int:
        """From where on an instruction may still come for something before `direct_from`: behind what has come; but
        nobody knows how far routers are with a partition that nobody here wants anything of, hence the limit."""
        own, all_shards = self._order.instructed_to(partition), self._instructed_to(partition) - 1 - _SKEW
        return max(0, min(max(own, all_shards, direct_from - WINDOW_SIZE), direct_from))

    def hold_until(self, effective_ms: int) -> None:
        """Goes on reading at least until what was appended before `effective_ms` is passed."""
        self._until_ms = max(self._until_ms, effective_ms)

    def unpassed(self, start: dict[int, int]) -> dict[int, int]:
        """See :meth:`DeliveryOrder.unpassed`."""
        return self._order.unpassed(start)

    def takes(self, record: Record) -> bool:
        """Whether a record of `ingress` is the next one, or behind it; not if it is to be read again later."""
        partition = record.partition()
        return partition not in self._paused and self._order.is_next(partition, record.offset())

    def pause(self, partition: int) -> None:
        """Reads no more of a partition until `go_on`."""

        async def pause() -> None:
            async with self._lock:
                await self._ingress.leave(self, [partition])

        self._paused.add(partition)
        self._spawn(pause())

    def go_on(self, partition: int) -> None:
        """Reads a partition again from where it was read to, if it is paused."""

        async def go_on() -> None:
            async with self._lock:  # behind `pause`
                if partition in self._paused:
                    start = {partition: self._order.read_to[partition]}
                    await self._ingress.read(self, start, lambda: self._paused.discard(partition))

        if partition in self._paused:
            self._spawn(go_on())

    async def stop(self) -> None:
        """Reads no more; where it was stays, for the home that goes on."""
        async with self._lock:
            if self._order.passed_to is not None:
                await self._ingress.leave(self, self._order.passed_to)

    async def pass_deleted(self) -> bool:
        """Passes what is not there any more, if instructions or the end wait for it; whether there was any. Call it
        every second or so: it asks Kafka only where nothing has come since the last call. Raises BusError."""
        order, was_at = self._order, self._was_at
        self._was_at = order.next_to_read()
        wanted, of_earlier = self._targets or {}, self._reread_to
        start = {
            p: at
            for p, at in self._was_at.items()
            if was_at.get(p) == at
            and p not in self._paused
            and (p in order.parked or at < max(wanted.get(p, 0), of_earlier.get(p, 0)))
        }
        if not start:
            return False
        first = await self._ingress.first_offsets(start)
        return any([order.pass_deleted(p, at, first[p]) for p, at in start.items()])

    async def end_if_passed(self, now_ms: int) -> bool:
        """Ends reading when nothing more can come this way; True if it has just ended."""
        until_ms, order = self._until_ms, self._order
        if order.passed_to is None or now_ms < until_ms + CLOCK_SLACK_MS:
            return False
        async with self._lock:
            if self._targets is None:
                self._targets = await self._ingress.end_offsets()
            if order.passed_to is None or self._paused or order.waiting or not order.has_passed(self._targets):
                return False
            if self._until_ms != until_ms:  # somebody needs it longer, and waits for the lock
                self._targets = None
                return False
            await self._ingress.leave(self, order.passed_to)
            order.end()
            self._targets = None
            self.done_ms = max(self.done_ms, until_ms)
            return True
