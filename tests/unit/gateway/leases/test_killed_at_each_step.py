"""Gateways are killed at each step of a change of owner, under load (Q7, G7)."""

import asyncio
from pathlib import Path

import pytest

from tests.draw import some
from tests.unit.gateway.leases.site import SETTLED_S, Site
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.test_shard_moves import Load
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run


async def loaded(directory: Path) -> tuple[Site, Load]:
    site = await Site(directory).start()
    load = Load(site)
    await load.begin()
    load.members[0].mute = load.members[3].mute = True
    load.publish(60)
    await turn(0.02)
    return site, load


async def end(site: Site, load: Load) -> None:
    """A gateway joins, everybody comes back, and nothing is missing or twice."""
    await site.join("another")
    await turn(SETTLED_S)
    await site.reconnect()
    load.publish(20)
    await site.settle()
    load.check(killed=True)


@pytest.mark.parametrize("rounds", some(range(1, 400, 7), 4, "rounds of a takeover"))
def test_whoever_takes_over_is_killed_too(tmp_path: Path, rounds: int) -> None:
    """Two in a row: the second one while it claims, reads, or begins to serve."""

    async def scenario() -> None:
        site, load = await loaded(tmp_path)
        first = site.owner_of(0)
        second = next(member for member in site.members if member is not first)
        first.kill()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_at_turn(loop.turns + rounds, second.kill)
        await turn(SETTLED_S)
        second.kill()
        await end(site, load)

    run(scenario())


@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("rounds", some(range(1, 200, 5), 2, "rounds of a planned move"))
def test_killed_in_a_planned_move(tmp_path: Path, who: str, rounds: int) -> None:
    """R5: whoever is left has the shard in the end."""

    async def scenario() -> None:
        site, load = await loaded(tmp_path)
        source = site.owner_of(0)
        target = next(member for member in site.members if member is not source)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        killed = source if who == "source" else target
        loop.call_at_turn(loop.turns + rounds, killed.kill)
        source.control.move(0, target.name)
        await turn(SETTLED_S)
        killed.kill()
        await end(site, load)

    run(scenario())
