"""The in-memory bus: the contract, and what it can be asked to do besides."""

import asyncio
from functools import partial

from confluent_kafka import KafkaError

from gateway.memory_bus import MemoryBroker, MemoryBus
from gateway.record import Record
from schemas.topics import Topics
from tests.unit.gateway.bus_contract import BusContract
from tests.unit.gateway.bus_reads_contract import BusReadsContract
from tests.unit.gateway.bus_scenarios import Check, Producing
from tests.unit.gateway.shard.virtual_time import EPOCH, run


class TestMemoryBus(BusContract, BusReadsContract):
    async def delete(self, topic: str, partition: int, before: int) -> None:
        self._broker.delete(topic, partition, before)

    def scenario(self, check: Check) -> None:
        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            self._broker = MemoryBroker(lambda: EPOCH + loop.time())
            bus = MemoryBus(self._broker, loop)
            received: list[Record] = []
            bus.start(partial(self.take, received))
            await check(bus, Topics("p."), received)

        run(scenario())


def test_it_holds_back_refuses_and_dies() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus = MemoryBus(broker, loop)
        sent, log = Producing(bus, "t"), broker.partitions["t", 0]
        bus.held_acks = {"t"}
        sent.send(0, 0)
        await asyncio.sleep(1)
        assert (len(log), sent.done, bus.in_flight) == (1, [], 1)
        bus.held_acks, bus.held_stores = set(), {"t"}
        bus.release()
        for n in range(1, 4):
            sent.send(0, n)
        await asyncio.sleep(1)
        assert (len(log), sent.done, bus.in_flight) == (1, [(0, 0, 0)], 3)
        bus.crash(stored=2)
        bus.held_stores = set()
        bus.release()
        await asyncio.sleep(1)
        assert [record.key() for record in log] == [b"key-0", b"key-1", b"key-2"]
        assert sent.done == [(0, 0, 0)]
        again = MemoryBus(broker, loop)
        sent = Producing(again, "t")
        again.refused["t"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        sent.send(0, 5)
        await asyncio.sleep(1)
        assert (len(sent.errors), sent.done, len(log)) == (1, [], 3)
        again.refused.clear()
        sent.send(0, 6)
        await asyncio.sleep(1)
        assert sent.done == [(0, 6, 3)]

    run(scenario())
