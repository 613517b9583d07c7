"""Gateways that share the shards of a site: shards change their owner, and one that stood still wakes up later."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gateway.memory_bus import MemoryRecord
from gateway.shard.fences import write_fences
from gateway.shard.home import Home
from gateway.shard.ingress_fences import FENCES_KEY, write_ingress_fences
from gateway.shard.recovery import Recovery
from schemas.events import RouteEvent, encode
from schemas.identity import shard_of
from schemas.leases import Claimant
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.two_gateways import Either, Gateway, TwoGateways


def nothing() -> None:
    """Happens."""


class Clustered(TwoGateways):
    """`epochs` of the shards' owners. All clients publish to one partition of `ingress`, unless there are more."""

    def __init__(self, directory: Path, partitions: int = 1) -> None:
        super().__init__(directory)
        self.environment["WAYSTATION_GATEWAY__CLUSTER__ENABLED"] = "true"
        self.environment["WAYSTATION_KAFKA__INGRESS_PARTITIONS"] = str(partitions)
        self.epochs = Counter[int]()

    async def start(self) -> "Clustered":
        """A gateway for each shard, and one that has none."""
        self.home = Either(self.gateways)  # type: ignore[assignment]
        self.is_up = True
        for number in range(SHARDS):
            await self.take_over(number, await self.empty())
        await self.empty()
        return self

    async def empty(self) -> Gateway:
        """A gateway without shards."""
        gateway = await self.gateway()
        gateway.home = home = Home(gateway.node, {})
        gateway.bus.start(home.records)
        await gateway.bus.assign(await Recovery(gateway.node, {}).node())
        gateway.node.numbers.begin(self.clock(), 0)
        home._spawn(home.regular.checkpoints())
        home._spawn(home.regular.housekeeping())
        return gateway

    async def take_over(
        self, number: int, gateway: Gateway, before: Callable[[], None] = nothing, behind: Callable[[], None] = nothing
    ) -> None:
        """A gateway becomes the next owner of a shard; what happens just `before` and just `behind` its fences."""
        self.epochs[number] += 1
        node, epoch = gateway.node, self.epochs[number]
        home = gateway.home._home(number, gateway._spool(number), epoch)
        await write_fences(
            node.bus, node.topics, {number: epoch}, Claimant(node.settings.gateway.name, node.numbers.boot)
        )
        before()
        await write_ingress_fences(gateway.node, {number: self.epochs[number]})
        behind()
        start = await Recovery(gateway.node, {number: home}).shards()
        gateway.home.shards[number] = home
        await gateway.home._begin(start, home)

    async def take_up(self) -> None:
        """The last gateway that is up takes over the shards that nobody has."""
        for number in range(SHARDS):
            if self.owner(number) is None:
                up = [gateway for gateway in self.gateways if gateway.is_up]
                await self.take_over(number, up[-1] if up else await self.empty())

    def cut_off(self, number: int) -> Gateway:
        """Nothing that the owner writes is stored any more, and it reads nothing; its clients do not notice yet."""
        gateway = self.owner(number)
        assert gateway is not None
        gateway.bus.is_consuming = False
        gateway.bus.held_stores = {name for name in vars(self.topics).values() if name}
        return gateway

    def stand_still(self, gateway: Gateway) -> None:
        """The process stands still; its clients leave it."""
        gateway.is_up = False
        for client in self.clients:
            if client.link is not None and client.attached.home in gateway.home.shards.values():
                client.link = None

    def wake(self, gateway: Gateway) -> None:
        """Its Kafka client sends what it had queued for topics that several shards share, and then it is killed."""
        shared = self.topics.ingress, self.topics.retained, self.topics.egress, self.topics.routes
        for (topic, _), waiting in gateway.bus._unstored.items():
            if topic in shared:
                for sent in waiting:
                    self.broker.append(sent.record)
        gateway.bus.crash()
        gateway.spools.close()

    def drop_late(self, number: int, route_key: str) -> None:
        """An earlier owner of a shard drops a route that the present one needs."""
        drop = RouteEvent(op="drop", shard=number, route_key=route_key)
        self.broker.append(MemoryRecord((self.topics.routes, 0), drop.kafka_key.encode(), encode(drop), []))

    def fences(self) -> int:
        """Fence messages on `ingress`."""
        found = [r for (topic, _), r in self.broker.partitions.items() if topic == self.topics.ingress]
        return sum(record.key() == FENCES_KEY for records in found for record in records)

    def fenced(self) -> int:
        """Messages that homes have dropped."""
        return sum(gateway.node.counts["fenced"] for gateway in self.gateways)

    def names(self, number: int) -> list[str]:
        """Clients of one shard."""
        return [name for name in map("client{}".format, range(40)) if shard_of(name, SHARDS) == number]

    async def reconnect(self) -> None:
        for client in self.clients:
            if client.link is None and self.owner(shard_of(client.name, SHARDS)) is not None:
                await Client.connect(client)
        await turn()
