"""Gateways that share shards, over one broker in memory: each takes a shard in a higher epoch than the one before, and
may be cut off from the broker and come back."""

import asyncio
from pathlib import Path

import msgspec

from gateway.memory_bus import MemoryBus, MemoryRecord
from gateway.shard.home import Home
from gateway.shard.ingress_fences import FENCES_KEY
from gateway.shard.shard_home import ShardHome
from schemas.fences import epoch_of
from schemas.settings import Settings
from tests.unit.gateway.shard.home_harness import PARTITIONS, SHARDS, InlineSpools
from tests.unit.gateway.shard.two_gateways import Either, Gateway, TwoGateways, opened


class FencedGateway(Gateway):
    """One process. `lost` are the shards whose home has read the fence of another gateway."""

    def __init__(self, harness: "FencedGateways", directory: Path, name: str) -> None:
        self._directory = directory
        self._harness = harness
        self.name = name
        self.bus = MemoryBus(harness.broker, asyncio.get_running_loop())
        self.spools = harness.spools_in(directory)
        self.node = harness.make_node(harness.settings_of(name), self.bus)
        self.is_up = True
        self.lost: list[int] = []

    async def begin(self) -> "FencedGateway":
        """Starts without shards."""
        self.node.numbers.begin(self.node.clock(), 0)
        self.home = Home(self.node, {})
        self.home.on_superseded = lambda shard, _epoch, _fence: self.lost.append(shard)
        self.bus.start(self.home.records)
        await self.home.start()
        return self

    async def own(self, number: int, epoch: int) -> ShardHome:
        """Takes up a shard. Raises Outranked, ShardLost."""
        try:
            files = opened({number: self._spool(number)})
            started = await self.home.start_shards({number: epoch}, files, lambda _s, _e: True)
            for error in started.failed.values():
                raise error
        finally:
            if number not in self.home.shards:
                del self.spools.files[number]
        return self.home.shards[number]

    def cut_off(self) -> None:
        """Nothing that it writes from now on is stored, and it reads nothing."""
        topics = self._harness.topics
        written = {topics.sessions, topics.spool, topics.ingress, topics.progress, topics.egress, topics.retained}
        self.bus.held_stores, self.bus.held_follows, self.bus.is_consuming = written, {topics.sessions}, False

    def come_back(self, *, reads: bool = True) -> None:
        """What it has written meanwhile is stored, in order; it reads on."""
        self.bus.held_stores = set()
        if reads:
            self.bus.held_follows, self.bus.is_consuming = set(), True
        self.bus.release()


class FencedGateways(TwoGateways):
    """`gateways` are those that were ever started."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.home = Either(self.gateways)  # type: ignore[assignment]
        self.is_up = True

    def settings_of(self, name: str) -> Settings:
        settings = self.settings()
        cluster = msgspec.structs.replace(settings.gateway.cluster, enabled=True)
        return msgspec.structs.replace(
            settings, gateway=msgspec.structs.replace(settings.gateway, name=name, cluster=cluster)
        )

    def spools_in(self, directory: Path) -> InlineSpools:
        return InlineSpools(directory, 0)

    async def start(self, count: int = 2) -> "FencedGateways":
        """Gateways without shards, but for the first one, which has all in epoch 1."""
        for number in range(count):
            gateway = FencedGateway(self, self._path / f"gateway{number}", f"gateway{number}")
            self.gateways.append(await gateway.begin())
        for shard in range(SHARDS):
            await self.at(0).own(shard, 1)
        return self

    def at(self, number: int) -> FencedGateway:
        found = self.gateways[number]
        assert isinstance(found, FencedGateway)
        return found

    def log(self, topic: str, shard: int) -> list[MemoryRecord]:
        return [record for record in self.broker.partitions[topic, shard] if not record.is_removed]

    def epochs(self, topic: str, shard: int) -> list[int]:
        return [epoch_of(record.headers()) for record in self.log(topic, shard)]

    def published(self) -> dict[str, tuple[int, int]]:
        """Without fences, which are no messages of clients."""
        partitions = [self.broker.partitions[self.topics.ingress, p] for p in range(PARTITIONS)]
        fences = {(r.partition(), r.offset()) for records in partitions for r in records if r.key() == FENCES_KEY}
        return {message: place for message, place in super().published().items() if place not in fences}
