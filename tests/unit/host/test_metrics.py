"""What a gateway's metrics say."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from gateway.host.server import HostServer
from gateway.metrics import GatewayCollector
from tests.unit.home.home_world import World
from tests.unit.home.virtual_time import run


def test_positions_are_where_the_shards_have_come_on_egress(tmp_path: Path) -> None:
    """`waystation status` reckons the gateway's lag from them."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        server = HostServer(world.settings().gateway, world.home, world.clock, lambda: 0, world.fatal.append)
        registry = CollectorRegistry()
        registry.register(GatewayCollector(server, world.context))
        for shard in world.context.shards:
            labels = {"topic": world.topics.egress, "partition": str(shard.number)}
            assert registry.get_sample_value("waystation_position", labels) == 0
            shard.position = 7 + shard.number
            assert registry.get_sample_value("waystation_position", labels) == 7 + shard.number
        await server.stop()

    run(scenario())
