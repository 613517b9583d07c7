"""Reads partitions of `sessions` along, for the homes of this process: one consumer, which nothing pauses (G7)."""

from collections.abc import Callable

from gateway.bus import Bus
from gateway.record import Record
from gateway.topic_follower import Following

Take = Callable[[Record], None]


class SessionsReader:
    """Follows the topic only for homes of shards that others may take: before the first it costs nothing."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self._takers: dict[int, Take] = {}
        self._following: Following | None = None

    async def add(self, shard: int, offset: int, take: Take) -> None:
        """`take` gets the records of the shard's partition from `offset` on, on the loop. Raises BusError."""
        if self._following is None:
            self._following = self._bus.follow({}, self._take)
        self._takers[shard] = take
        await self._following.add({(self._topic, shard): offset})

    async def remove(self, shard: int, take: Take) -> None:
        """`take` gets no more. Raises BusError."""
        if (
            self._following is not None and self._takers.get(shard) == take
        ):  # a bound method is another object each time
            del self._takers[shard]
            await self._following.remove([(self._topic, shard)])

    def _take(self, records: list[Record]) -> None:
        takers = self._takers
        for record in records:
            take = takers.get(record.partition())
            if take is not None:
                take(record)
