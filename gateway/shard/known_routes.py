"""The topic `routes` as far as it was read: which routes of each shard are open, and since when.

Every start of a shard needs them. Their number depends on all shards, and on how far the broker has compacted the
topic. So whoever starts shards while clients wait keeps this, and reads on from where it was.

A route that was dropped ends DROP_LEADS leads later, for routers and here. Until a lead has passed it is known, so that
the owner of the shard can undo a drop that is not its own (:meth:`gateway.shard.routes.ShardRoutes.mend`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gateway.bus import Bus
from gateway.record import Record
from schemas.errors import RecordError
from schemas.events import RouteEvent
from schemas.events import decode as decode_event


class Dropped(NamedTuple):
    """A route that ends: when it was added and dropped, ms since the epoch, and where on the topic the drop stands."""

    added_ms: int
    dropped_ms: int
    offset: int


class KnownRoutes:
    """The fold, of all `shards` shards. `malformed` gets each record that is left out, with what is wrong with it."""

    def __init__(
        self, bus: Bus, topic: str, shards: int, lead_ms: int, malformed: Callable[[Record, str], None]
    ) -> None:
        self._bus = bus
        self._lead_ms = lead_ms
        self._dropped: defaultdict[int, dict[str, Dropped]] = defaultdict(dict)  # the one dropped first is first
        self._topic = topic
        self._shards = shards
        self._malformed = malformed
        self._since: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self._read_to = 0
        self._lock = asyncio.Lock()

    async def read_on(self) -> int:
        """Up to the topic's present end; returns how many records that were. Raises BusError."""
        async with self._lock:
            found: list[Record] = []  # it is read in another thread
            ends = await self._bus.read(self._topic, {0: self._read_to}, found.append)
            if ends[0] < self._read_to:  # it is another topic of this name
                self._since.clear()
                self._dropped.clear()
                ends = await self._bus.read(self._topic, {0: 0}, found.append)
            for record in found:
                self._fold(record)
            self._read_to = ends[0]
            return len(found)

    def of(self, shard: int) -> Mapping[str, int]:
        """The route keys that are open, each with the time when it was added, ms since the epoch."""
        return self._since.get(shard, {})

    def dropped(self, shard: int) -> Mapping[str, Dropped]:
        """The route keys that are to end, and were dropped at most a lead before the last drop of the shard."""
        return self._dropped.get(shard, {})

    def _fold(self, record: Record) -> None:
        raw = record.value()
        if raw is None:
            return
        try:
            event = decode_event(RouteEvent, raw)
        except RecordError as error:
            self._malformed(record, str(error))
            return
        if not 0 <= event.shard < self._shards:
            return
        key, appended_ms = event.route_key, record.timestamp()[1]
        open_keys, dropped = self._since[event.shard], self._dropped[event.shard]
        if event.op == "add":
            before = dropped.pop(key, None)
            is_undone = before is not None and appended_ms < before.dropped_ms + self._lead_ms
            open_keys.setdefault(key, before.added_ms if before is not None and is_undone else appended_ms)
        elif event.op == "drop" and key in open_keys:
            while dropped and appended_ms >= dropped[first := next(iter(dropped))].dropped_ms + self._lead_ms:
                del dropped[first]
            dropped[key] = Dropped(open_keys.pop(key), appended_ms, record.offset())
