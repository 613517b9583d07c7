"""A fence of an epoch that nobody has claimed leaves no shard without a home (G6, G14, Q7).

Whoever writes a fence has read its claim before. So there is such a fence only if `leases` has lost the claim.
"""

from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from schemas.fences import encode_fence, epoch_headers, fence_key
from schemas.leases import Claimant
from tests.unit.gateway.leases.site import SETTLED_S, ClusterGateway, Site
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.test_shard_moves import Load
from tests.unit.gateway.shard.virtual_time import run

DEAD = Claimant("a gateway that has died", 1)


def write_fence(site: Site, shard: int, epoch: int) -> None:
    """Somebody begins an epoch, and dies."""
    for topic in (site.topics.sessions, site.topics.spool):
        site.broker.append(MemoryRecord((topic, shard), fence_key(epoch), encode_fence(DEAD), epoch_headers(epoch)))


def serving(site: Site, shard: int) -> list[ClusterGateway]:
    """Whose home of a shard serves, and is not lost."""
    up = [member for member in site.members if member.is_up and shard in member.home.shards]
    return [member for member in up if not member.home.shards[shard].promises.is_lost]


@pytest.mark.parametrize("above", [1, 7])
def test_the_owner_claims_its_shard_again(tmp_path: Path, above: int) -> None:
    """It is owned again soon, above that epoch, by one gateway; nothing acknowledged is lost."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        load = Load(site)
        await load.begin()
        load.publish(40)
        await turn(0.02)
        epoch = site.owner_of(0).control.owned(0)
        write_fence(site, 0, epoch + above)
        await turn(SETTLED_S)
        [owner] = serving(site, 0)
        assert owner.control.owned(0) > epoch + above
        assert owner.control.phase(0) == "serving"
        assert all(member.control.table[0].owner == owner.control.me for member in site.members)
        assert [len(serving(site, shard)) for shard in range(SHARDS)] == [1] * SHARDS
        await site.reconnect()
        load.publish(20)
        await site.settle()
        load.check(killed=True)

    run(scenario())


def test_a_fence_of_a_claim_is_left_to_its_claimant(tmp_path: Path) -> None:
    """The earlier owner reads the fence before it reads the claim: it looks for the claim, and writes none."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        await turn(5)
        earlier = site.owner_of(0)
        earlier.bus.held_follows = {site.topics.leases}
        epoch = earlier.control.owned(0)
        thief = next(member for member in site.members if member is not earlier)
        for effect in thief.control._keeper._claim(0, 0.0):
            thief.control._perform([effect])
        await turn(0.2)
        assert earlier.home.shards[0].promises.is_lost
        assert thief.control.phase(0) == "serving"
        earlier.bus.held_follows = set()
        earlier.bus.release()
        await turn(0.5)
        assert [member.control.owned(0) for member in site.members if member.control.owned(0)] == [epoch + 1]
        assert serving(site, 0) == [thief]
        assert not site.fatal

    run(scenario())
