"""How much of `egress` is read ahead: what waits in memory, for the catch-up reader or the spool, is bounded (R8)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.shard.node import Node
from gateway.shard.outage import SpoolOutage
from gateway.shard.shard import Shard


class EgressFlow:
    """Pauses a shard that has its part of `limits.held_back_messages` or `held_back_bytes` parked, which all shards
    share evenly, until half of it has gone. Not while direct deliveries wait: they may wait for what is still to come
    on `egress`, and the reader behind them.

    Pauses it also while a spool that cannot be written has left too much in memory. `spawn` starts a coroutine whose
    failure is fatal.
    """

    def __init__(
        self, node: Node, shard: Shard, outage: SpoolOutage, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._bus = node.bus
        self._counts = node.counts
        self._shard = shard
        self._outage = outage
        self._spawn = spawn
        limits, shards = node.settings.gateway.limits, node.settings.kafka.shards
        self._place = (node.topics.egress, shard.number)
        self._most = max(1, limits.held_back_messages // shards)
        self._most_bytes = max(1, limits.held_back_bytes // shards)
        self._lock = asyncio.Lock()
        self.is_paused = False

    def adjust(self, direct_deliveries_wait: bool) -> None:
        """Pauses or resumes the shard if it has to be, after a batch of records."""
        is_full, parked = self._outage.is_full, self._shard.order.parked
        load = max(parked.records / self._most, parked.bytes / self._most_bytes)
        if self.is_paused:
            if not is_full and (direct_deliveries_wait or load <= 1 / 2):
                self.is_paused = False
                self._spawn(self._go_on())
        elif is_full or (load >= 1 and not direct_deliveries_wait):
            self.is_paused = True
            self._counts["parked_full"] += not is_full
            self._spawn(self._pause())

    async def _pause(self) -> None:
        async with self._lock:
            await self._bus.unassign([self._place])

    async def _go_on(self) -> None:
        async with self._lock:  # behind `_pause`: nothing read before it is still on its way
            await self._bus.assign({self._place: self._shard.position})
