"""One read of `ingress` for several shards: each gets every record from its own position on, once, in order (R8)."""

import asyncio
import random

from gateway.memory_bus import MemoryBroker, MemoryBus, MemoryRecord
from gateway.record import Record
from gateway.shard.ingress_reader import IngressReader
from gateway.shard.ingress_record import IngressRecord
from tests.draw import examples, generator
from tests.unit.gateway.shard.virtual_time import EPOCH, run

TOPIC, PARTITIONS, RECORDS = "ingress", 2, 60


class Reader:
    """As a shard's catch-up reader: takes what is next for it or behind that, and nothing while it is away."""

    def __init__(self, ingress: IngressReader) -> None:
        self._ingress = ingress
        self._next: dict[int, int] = {}
        self.got: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}

    def take(self, record: Record) -> None:
        partition, offset = record.partition(), record.offset()
        if partition in self._next and offset >= self._next[partition]:
            self.got[partition].append(offset)
            self._next[partition] = offset + 1

    async def read(self, positions: dict[int, int]) -> None:
        await self._ingress.read(self, positions, lambda: self._next.update(positions))

    async def leave(self, partition: int) -> int:
        """Returns where to go on."""
        position = self._next.pop(partition)
        await self._ingress.leave(self, [partition])
        return position


def test_each_reader_gets_everything_from_its_position_on() -> None:
    """They begin, leave and go on, ahead of one another and behind."""

    async def scenario(chance: random.Random) -> None:
        loop = asyncio.get_running_loop()
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus = MemoryBus(broker, loop)
        ingress = IngressReader(bus, TOPIC, PARTITIONS)
        readers = [Reader(ingress) for _ in range(3)]

        def take(batch: list[Record]) -> None:
            for record in batch:
                ingress.received(record)
                for reader in readers:
                    reader.take(record)

        bus.start(take)  # type: ignore[arg-type]
        starts: dict[tuple[int, int], int] = {}
        away: dict[tuple[int, int], int] = {}
        for _ in range(RECORDS):
            broker.append(MemoryRecord((TOPIC, chance.randrange(PARTITIONS)), b"a", b"", None))
            number, partition = chance.randrange(len(readers)), chance.randrange(PARTITIONS)
            place, end = (number, partition), len(broker.partitions[TOPIC, partition])
            if place in away:
                await readers[number].read({partition: away.pop(place)})
            elif place in starts:
                away[place] = await readers[number].leave(partition)
            else:
                starts[place] = chance.randrange(end + 1)
                await readers[number].read({partition: starts[place]})
            if chance.random() < 0.3:
                await asyncio.sleep(0.01)
        for (number, partition), position in away.items():
            await readers[number].read({partition: position})
        await asyncio.sleep(1)
        for (number, partition), start in starts.items():
            expected = list(range(start, len(broker.partitions[TOPIC, partition])))
            assert readers[number].got[partition] == expected
        for number, partition in starts:
            await readers[number].leave(partition)
        assert not bus.reading, "nobody wants anything"

    for number in range(examples(40)):
        run(scenario(generator(f"readers {number}")))


def test_what_is_derived_from_a_topic() -> None:
    assert IngressRecord(MemoryRecord((TOPIC, 0), b"a/b", b"", None)).keys == ["a/b", "a", "#"]
    assert IngressRecord(MemoryRecord((TOPIC, 0), b"\xff", b"", None)).topic is None
