"""One read of `ingress` for all shards of this process that want it, each from its own position (R8).

A consumer has one position a partition. So a partition is read from the lowest position that a shard wants; whoever has
had a record already passes it over.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from gateway.bus import Bus
from gateway.record import Record


class IngressReader:
    """Reads partitions while somebody wants them. `who` is what identifies a reader."""

    def __init__(self, bus: Bus, topic: str, partitions: int) -> None:
        self._bus = bus
        self._topic = topic
        self._partitions = partitions
        self._readers: defaultdict[int, set[object]] = defaultdict(set)
        self._next: dict[int, int] = {}
        self._lock = asyncio.Lock()

    async def end_offsets(self) -> dict[int, int]:
        """The offset after the last record, by partition."""
        return await self._bus.end_offsets(self._topic, self._partitions)

    async def first_offsets(self, start: dict[int, int]) -> dict[int, int]:
        """See :meth:`gateway.bus.Bus.first_offsets`."""
        return await self._bus.first_offsets(self._topic, start)

    async def read(self, who: object, positions: dict[int, int], begin: Callable[[], None]) -> None:
        """Reads on, or again, from these offsets by partition. Calls `begin` when records from there are the next to
        come; those before it may still be of an earlier read."""
        async with self._lock:
            behind = {p: at for p, at in positions.items() if not self._readers[p] or at < self._next[p]}
            again = [p for p in behind if self._readers[p]]
            if again:
                await self._bus.unassign((self._topic, p) for p in again)
            for partition in positions:
                self._readers[partition].add(who)
            self._next |= behind
            begin()
            if behind:
                await self._bus.assign({(self._topic, p): at for p, at in behind.items()})

    async def leave(self, who: object, partitions: Iterable[int]) -> None:
        """Reads these partitions no more, unless for others."""
        async with self._lock:
            unread = []
            for partition in partitions:
                if who in self._readers[partition]:
                    self._readers[partition].remove(who)
                    if not self._readers[partition]:
                        unread.append((self._topic, partition))
            if unread:
                await self._bus.unassign(unread)

    def received(self, record: Record) -> None:
        """A record is given to whoever reads."""
        self._next[record.partition()] = record.offset() + 1
