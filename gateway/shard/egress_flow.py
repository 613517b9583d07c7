"""How much of `egress` is read ahead: what waits in memory, for the instant reader or the spool, is bounded (R8)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.shard.context import HomeContext
from gateway.shard.shard import Shard


class EgressFlow:
    """Pauses the shards that have `limits.held_back_messages` or `held_back_bytes` parked, shared by the shards evenly,
    until half of it has gone. Not while own copies wait: they may wait for what is still to come on `egress`, and the
    reader behind them.

    Pauses all of them while a spool that cannot be written has left too much in memory. `spawn` starts a coroutine
    whose failure is fatal.
    """

    def __init__(self, context: HomeContext, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._context = context
        self._spawn = spawn
        limits, shards = context.settings.gateway.limits, len(context.shards)
        self._most = max(1, limits.held_back_messages // shards)
        self._most_bytes = max(1, limits.held_back_bytes // shards)
        self._paused: set[int] = set()
        self._lock = asyncio.Lock()

    @property
    def is_paused(self) -> bool:
        """Whether some shard is."""
        return bool(self._paused)

    def adjust(self, own_copies_wait: bool) -> None:
        """Pauses and resumes what has to be, after a batch of records."""
        is_full = self._context.outage.is_full
        for shard in self._context.shards:
            load = max(shard.parked_records / self._most, shard.parked_bytes / self._most_bytes)
            if shard.number in self._paused:
                if not is_full and (own_copies_wait or load <= 1 / 2):
                    self._paused.discard(shard.number)
                    self._spawn(self._go_on(shard))
            elif is_full or (load >= 1 and not own_copies_wait):
                self._paused.add(shard.number)
                self._context.counts["parked_full"] += not is_full
                self._spawn(self._pause(shard))

    async def _pause(self, shard: Shard) -> None:
        async with self._lock:
            await self._context.bus.unassign([(self._context.topics.egress, shard.number)])

    async def _go_on(self, shard: Shard) -> None:
        async with self._lock:  # behind `_pause`: nothing read before it is still on its way
            await self._context.bus.assign({(self._context.topics.egress, shard.number): shard.position})
