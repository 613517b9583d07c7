"""The partitions of `sessions` that homes read along come and go (G7)."""

import asyncio

from gateway.memory_bus import MemoryBroker, MemoryBus
from gateway.record import Record
from gateway.shard.sessions_reader import SessionsReader
from tests.unit.gateway.shard.virtual_time import run


class Home:
    def __init__(self) -> None:
        self.got: list[int] = []

    def take(self, record: Record) -> None:
        self.got.append(record.offset())


def test_a_shard_that_comes_back_is_read_again() -> None:
    """Each home ends by the method that it began with; the one before it, which ends late, takes nothing from it."""

    async def scenario() -> None:
        broker = MemoryBroker(lambda: 0.0)
        bus = MemoryBus(broker, asyncio.get_running_loop())
        bus.start(lambda records: None)
        reader, first, second = SessionsReader(bus, "sessions"), Home(), Home()
        await reader.add(0, 0, first.take)
        bus.produce("sessions", 0, b"key", b"value", None, lambda *_: None)
        await asyncio.sleep(1)
        await reader.remove(0, first.take)
        await reader.add(0, 1, second.take)
        await reader.remove(0, first.take)
        bus.produce("sessions", 0, b"key", b"value", None, lambda *_: None)
        await asyncio.sleep(1)
        assert (first.got, second.got) == ([0], [1])

    run(scenario())
