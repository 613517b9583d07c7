"""A shard whose state a later release has written, in a version that these gateways do not read: it is served by nobody
rather than without that state, and everything else goes on (R5, G8, G14; vernemq#2488)."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.fences import epoch_headers
from tests.unit.gateway.leases.site import SETTLED_S, ClusterGateway, Site
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.test_shard_moves import Load
from tests.unit.gateway.shard.virtual_time import run

AGAIN_S = 12.0
"""Longer than a gateway waits before it tries again what its release cannot serve."""

LATER = {
    "spool": (b"r/9000000", msgspec.msgpack.encode([2, "in another form"])),
    "sessions": (b"later\0o", b'{"version":2,"client":"later","born":"in another form"}'),
}


async def write(by: ClusterGateway, topic: str, shard: int, value: bytes | None) -> None:
    """As a later release would, that owns the shard."""
    stored: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    name = getattr(by.node.topics, topic)
    epoch = by.control.table[shard].epoch
    by.bus.produce(name, shard, LATER[topic][0], value, epoch_headers(epoch), lambda error, _: stored.set_result(error))
    assert await stored is None


@pytest.mark.parametrize("topic", ["spool", "sessions"])
def test_a_shard_is_not_served_without_its_state(tmp_path: Path, topic: str) -> None:
    async def scenario() -> None:
        site = await Site(tmp_path).start()
        load = Load(site)
        await load.begin()
        load.publish(40)
        await turn(0.5)
        owner = site.owner_of(0)
        others = {shard for shard in range(SHARDS) if shard}
        await write(owner, topic, 0, LATER[topic][1])
        owner.kill()
        await turn(AGAIN_S)
        up = [member for member in site.members if member.is_up]
        assert all(0 not in member.home.shards for member in up), "served without what it cannot read"
        assert {shard for member in up for shard in member.home.shards} == others, "others are served"
        assert not site.fatal
        await write(up[0], topic, 0, None)  # as the later release would, before it is replaced by this one
        await turn(AGAIN_S + SETTLED_S)
        assert any(0 in member.home.shards for member in up)
        await site.reconnect()
        load.publish(20)
        await site.settle()
        load.check(killed=True)

    run(scenario())
