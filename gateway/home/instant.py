"""Subscribing is instant though a route takes effect later: until then the home reads `ingress` itself.

The reader starts at the end of `ingress` before SUBACK, and ends once it has passed everything appended before the last
such route took effect. Instructions overtaken by it wait (`is_behind`), so a sender's messages stay in order (R8).
"""

import asyncio

from gateway.bus import Bus, Record
from gateway.home.session import SessionSubscription

CLOCK_SLACK_MS = 2_000
"""How far this machine's clock may be ahead of the broker's or behind it."""


class InstantReader:
    """Where the home reads `ingress`: `positions` by partition, the next offset to come; None while it does not read.

    Subscriptions whose route took effect by `done_ms` need the reader no more. `replay_to` is where `ingress` ended
    when the home started, if the reader goes on from before.
    """

    def __init__(self, bus: Bus, topic: str, partitions: int) -> None:
        self._bus = bus
        self._topic = topic
        self._partitions = partitions
        self._until_ms = 0
        self._targets: dict[int, int] | None = None
        self._lock = asyncio.Lock()
        self.positions: dict[int, int] | None = None
        self.done_ms = 0
        self.replay_to: dict[int, int] = {}

    def is_needed(self, effective_ms: int, now_ms: int) -> bool:
        """Whether messages sent from now on may still come before a route is in effect."""
        return effective_ms + CLOCK_SLACK_MS > now_ms

    def is_replayed(self) -> bool:
        """Whether all that an earlier life of the home can have seen has been read again."""
        positions = self.positions
        return positions is None or all(positions.get(p, 0) >= end for p, end in self.replay_to.items())

    async def begin(self, start: dict[int, int] | None = None) -> dict[int, int]:
        """Reads from now on (or from `start`); returns from where, by partition. Call `hold_until` first: a reader that
        nobody needs ends by itself, at any moment."""
        async with self._lock:
            if self.positions is None:
                start = start or await self._bus.end_offsets(self._topic, self._partitions)
                self.positions = dict(start)
                await self._bus.assign({(self._topic, p): offset for p, offset in start.items()})
            self._targets = None
            return dict(self.positions)

    def hold_until(self, effective_ms: int) -> None:
        """Goes on reading at least until what was appended before `effective_ms` is passed."""
        self._until_ms = max(self._until_ms, effective_ms)

    def passed(self, record: Record) -> None:
        """A record of `ingress` came."""
        if self.positions is not None:
            partition, offset = record.partition(), record.offset()
            self.positions[partition] = max(self.positions.get(partition, 0), offset + 1)

    def wants(self, subscription: SessionSubscription, record: Record) -> bool:
        """Whether the record comes by this way for a subscription: after it, and before its route."""
        start = subscription.record.ingress_from.get(record.partition())
        if start is None or record.offset() < start:
            return False
        return record.timestamp()[1] < subscription.record.effective_ms

    def is_behind(self, instruction: Record) -> bool:
        """Whether the message of an instruction has not been passed yet; its headers are checked later."""
        if self.positions is None:
            return False
        headers = instruction.headers() or []
        try:
            partition, offset = headers[4][1].split(b";", 2)[:2]
            return self.positions.get(int(partition), 0) <= int(offset)
        except (IndexError, ValueError, AttributeError):
            return False

    async def end_if_passed(self, now_ms: int) -> bool:
        """Ends reading when nothing more can come this way; True if it has just ended."""
        until_ms = self._until_ms
        if self.positions is None or now_ms < until_ms + CLOCK_SLACK_MS:
            return False
        async with self._lock:
            if self._targets is None:
                self._targets = await self._bus.end_offsets(self._topic, self._partitions)
            targets, positions = self._targets, self.positions
            if targets is None or positions is None or any(positions.get(p, 0) < end for p, end in targets.items()):
                return False
            if self._until_ms != until_ms:  # somebody needs it longer, and waits for the lock
                self._targets = None
                return False
            await self._bus.unassign((self._topic, p) for p in positions)
            self.positions = None
            self._targets = None
            self.done_ms = until_ms
            return True
