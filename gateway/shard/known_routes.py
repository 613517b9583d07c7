"""The topic `routes` as far as it was read: which routes of each shard are open, and since when.

Every start of a shard needs them. Their number depends on all shards, and on how far the broker has compacted the
topic. So whoever starts shards while clients wait keeps this, and reads on from where it was.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping

from gateway.bus import Bus
from gateway.record import Record
from schemas.errors import RecordError
from schemas.events import RouteEvent
from schemas.events import decode as decode_event


class KnownRoutes:
    """The fold, of all `shards` shards. `malformed` gets each record that is left out, with what is wrong with it."""

    def __init__(self, bus: Bus, topic: str, shards: int, malformed: Callable[[Record, str], None]) -> None:
        self._bus = bus
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
                ends = await self._bus.read(self._topic, {0: 0}, found.append)
            for record in found:
                self._fold(record)
            self._read_to = ends[0]
            return len(found)

    def of(self, shard: int) -> Mapping[str, int]:
        """The route keys that are open, each with the time when it was added, ms since the epoch."""
        return self._since.get(shard, {})

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
        if event.op == "add":
            self._since[event.shard].setdefault(event.route_key, record.timestamp()[1])
        elif event.op == "drop":
            self._since[event.shard].pop(event.route_key, None)
