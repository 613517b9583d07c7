"""Subscribing is instant though a route takes effect later: until then the shard's home reads `ingress` itself.

The reader starts at the end of `ingress` before SUBACK, and ends once it has passed everything appended before the last
such route took effect. It first looks at the records just before that end: which of them routers are still to bring, so
that what it brings itself does not overtake them (R8; :mod:`gateway.shard.own_copies`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gateway.record import Record
from gateway.shard.ingress_reader import IngressReader
from gateway.shard.shard import Shard
from gateway.shard.subscription import SessionSubscription
from gateway.shard.window import WINDOW_SIZE

CLOCK_SLACK_MS = 2_000
"""How far this machine's clock may be ahead of the broker's or behind it."""


_SKEW = 256
"""By how many messages of one partition of `ingress` one shard's instructions may be ahead of another's."""


class InstantReader:
    """Where a shard's home reads `ingress`: `positions` by partition, the next offset to be passed; None while it does
    not read.

    Own copies are at `begun` or behind it. Subscriptions whose route took effect by `done_ms` need the reader no more.
    `replay_to` is where `ingress` ended when the home started, if the reader goes on from before. `reached` gives the
    last message of a partition of `ingress` that any shard of this process has an instruction for. `spawn` starts a
    coroutine whose failure is fatal.
    """

    def __init__(
        self,
        shard: Shard,
        ingress: IngressReader,
        reached: Callable[[int], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._shard = shard
        self._ingress = ingress
        self._reached = reached
        self._spawn = spawn
        self._until_ms = 0
        self._targets: dict[int, int] | None = None
        self._received: dict[int, int] = {}
        self._paused: dict[int, int] = {}
        self._lock = asyncio.Lock()
        self.positions: dict[int, int] | None = None
        self.begun: dict[int, int] = {}
        self.done_ms = 0
        self.replay_to: dict[int, int] = {}

    def is_needed(self, effective_ms: int, now_ms: int) -> bool:
        """Whether messages sent from now on may still come before a route is in effect."""
        return effective_ms + CLOCK_SLACK_MS > now_ms

    def is_replayed(self) -> bool:
        """Whether all that an earlier life of the home can have seen has been read again."""
        return self._have_passed(self.replay_to)

    async def begin(self, begun: dict[int, int] | None = None) -> dict[int, int]:
        """Reads from now on (or from `begun`); returns from where, by partition. Call `hold_until` first: a reader that
        nobody needs ends by itself, at any moment."""
        async with self._lock:
            self._targets = None
            if self.positions is None:
                begun = begun or await self._ingress.end_offsets()
                await self._start({p: self._look_back(p, offset) for p, offset in begun.items()}, begun)
                return dict(begun)
            start = {p: max(offset, self._received[p]) for p, offset in self.begun.items()}
            if self._paused:
                ends = await self._ingress.end_offsets()
                start |= {p: ends[p] for p in self._paused}
            return start

    async def resume(self, positions: dict[int, int], begun: dict[int, int]) -> None:
        """Goes on where an earlier life of the home was."""
        async with self._lock:
            await self._start(positions, begun)

    async def _start(self, positions: dict[int, int], begun: dict[int, int]) -> None:
        def begin() -> None:
            self.positions, self._received, self.begun = dict(positions), dict(positions), dict(begun)

        await self._ingress.read(self, positions, begin)

    def _look_back(self, partition: int, begun: int) -> int:
        """From where on a router may still have to bring something that came before `begun`: behind what has come; but
        nobody knows how far routers are with a partition that nobody here wants anything of, hence the limit."""
        behind_own, behind_all = self._shard.reached(partition) + 1, self._reached(partition) - _SKEW
        return max(0, min(max(behind_own, behind_all, begun - WINDOW_SIZE), begun))

    def hold_until(self, effective_ms: int) -> None:
        """Goes on reading at least until what was appended before `effective_ms` is passed."""
        self._until_ms = max(self._until_ms, effective_ms)

    def unpassed(self, start: dict[int, int]) -> dict[int, int]:
        """What of `start` has not been passed since; what the reader has passed has gone to the subscriptions that were
        there, and must not come to a later one by another way."""
        return {p: max(start.get(p, 0), position) for p, position in (self.positions or {}).items()}

    def takes(self, record: Record) -> bool:
        """Whether a record of `ingress` is the next one, or behind it; not if it is to be read again later."""
        partition = record.partition()
        if self.positions is None or partition in self._paused:
            return False
        return record.offset() >= self._received.get(partition, 0)

    def received(self, record: Record) -> None:
        """A record of `ingress` is here; `passed` may follow later."""
        self._received[record.partition()] = record.offset() + 1

    def passed(self, record: Record) -> None:
        """All is done about a record of `ingress`, and about those before it."""
        if self.positions is not None:
            partition, position = record.partition(), record.offset() + 1
            self.positions[partition] = position
            self._received[partition] = max(position, self._received[partition])

    def pause(self, record: Record) -> None:
        """No more of a partition until `go_on`, which begins with this record."""

        async def pause() -> None:
            async with self._lock:
                await self._ingress.leave(self, [record.partition()])

        self._paused[record.partition()] = record.offset()
        self._spawn(pause())

    def go_on(self, partition: int) -> None:
        """Reads a partition again, if it is paused."""

        async def go_on() -> None:
            async with self._lock:  # behind `pause`
                offset = self._paused.get(partition)

                def begin() -> None:
                    del self._paused[partition]

                if offset is not None:
                    await self._ingress.read(self, {partition: offset}, begin)

        if partition in self._paused:
            self._spawn(go_on())

    def divide(
        self,
        subscriptions: Sequence[SessionSubscription],
        place: tuple[int, int, int],
        newer: list[SessionSubscription],
        routed: set[str],
    ) -> None:
        """Of subscriptions that match what is at `place` (partition, offset, append time) on `ingress`: adds to `newer`
        those it comes to by this way, being later and not routed yet; to `routed` the clients of those that an
        instruction brings it (:meth:`SessionSubscription.is_routed`)."""
        partition, offset, appended = place
        done_ms = self.done_ms
        for subscription in subscriptions:
            record = subscription.record
            if record.effective_ms <= appended:
                if record.ingress_from.get(partition, 0) <= offset:
                    routed.add(subscription.client)
            elif record.effective_ms > done_ms:
                start = record.ingress_from.get(partition)
                if start is not None and start <= offset:
                    newer.append(subscription)

    def is_behind(self, partition: int, offset: int) -> bool:
        """Whether an own copy may still come that is before this message of `ingress`."""
        positions = self.positions
        if positions is None or offset < self.begun.get(partition, 0):
            return False
        return positions.get(partition, 0) <= offset

    def _have_passed(self, ends: dict[int, int]) -> bool:
        """Whether no own copy can come any more that is before `ends`."""
        positions = self.positions
        if positions is None:
            return True
        return all(positions.get(p, 0) >= end or self.begun.get(p, 0) >= end for p, end in ends.items())

    async def end_if_passed(self, now_ms: int) -> bool:
        """Ends reading when nothing more can come this way; True if it has just ended."""
        until_ms = self._until_ms
        if self.positions is None or now_ms < until_ms + CLOCK_SLACK_MS:
            return False
        async with self._lock:
            if self._targets is None:
                self._targets = await self._ingress.end_offsets()
            targets, positions = self._targets, self.positions
            if targets is None or positions is None or self._paused or not self._have_passed(targets):
                return False
            if self._until_ms != until_ms:  # somebody needs it longer, and waits for the lock
                self._targets = None
                return False
            await self._ingress.leave(self, positions)
            self.positions = None
            self._targets = None
            self.done_ms = until_ms
            self._shard.expected.clear()
            return True


def place_of(instruction: Record) -> tuple[int, int] | None:
    """Partition and offset on `ingress` of an instruction's message; None if it does not say."""
    headers = instruction.headers() or []
    try:
        partition, offset = headers[4][1].split(b";", 2)[:2]
        return int(partition), int(offset)
    except (IndexError, ValueError, AttributeError):
        return None
