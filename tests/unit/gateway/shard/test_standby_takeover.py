"""A standby takes over the shard of a gateway that was killed under load (Q7, G8)."""

import asyncio
from pathlib import Path

import pytest

from gateway.shard.spool import Spool
from gateway.shard.standby import Standbys
from tests.draw import some
from tests.unit.gateway.shard.home_harness import InlineSpool, turn
from tests.unit.gateway.shard.test_shard_moves import Load
from tests.unit.gateway.shard.two_gateways import Gateway, TwoGateways, opened
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run


def standbys_of(gateway: Gateway, number: int, path: Path) -> Standbys:
    """The gateway keeps a shard warm that another one owns."""
    spool = InlineSpool(number, Spool(str(path)), gateway.spools)
    gateway.spools.files[number] = spool
    node = gateway.node
    return Standbys(gateway.bus, node.topics, {number: spool}, 10_000_000, node.clock, lambda *_: None, node.on_fatal)


@pytest.mark.parametrize("rounds", some(range(1, 120, 7), 5, "rounds of a takeover"))
def test_a_standby_takes_over_what_a_killed_gateway_had(tmp_path: Path, rounds: int) -> None:
    """Whenever it is killed: nothing is lost, nothing comes twice at QoS 2, and most was read before."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        load = Load(harness)
        owner, other = harness.gateways
        standbys = standbys_of(other, 0, tmp_path / "standby.sqlite")
        standbys.follow(0)
        await load.begin()
        load.members[0].mute = load.members[3].mute = True
        for _ in range(10):
            load.publish(40)
            await turn(0.5)
        await turn(2)
        assert standbys.is_warm(0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_at_turn(loop.turns + rounds, owner.kill)
        load.publish(40)
        await turn(1)
        owner.kill()
        warm = await standbys.release(0)
        assert warm is not None
        file = other.spools.files[0]
        left = len(harness.broker.partitions[harness.topics.spool, 0]) - file.inline.state().offset
        assert left < len(harness.broker.partitions[harness.topics.spool, 0]) / 4
        await other.home.start_shards({0: 0}, opened({0: file}, {0: warm}), lambda shard, epoch: True)
        await harness.reconnect()
        load.publish(20)
        await harness.settle()
        load.check(killed=True)
        await standbys.stop(1)

    run(scenario())


def test_a_standby_is_ready_again_after_a_planned_move_back(tmp_path: Path) -> None:
    """Q9: who has given a shard away follows it, with the file that it had."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        load = Load(harness)
        await load.begin()
        one, other = harness.gateways
        load.members[0].mute = True
        load.publish(80)
        await turn(2)
        path = Path(one.spools.files[0].inline._path)
        await one.hand_over(0)
        await other.start_shard(0)
        standbys = standbys_of(one, 0, path)
        standbys.follow(0)
        await harness.reconnect()
        load.publish(80)
        await turn(3)
        assert standbys.is_warm(0)
        await other.hand_over(0)
        warm = await standbys.release(0)
        assert warm is not None
        await one.home.start_shards({0: 0}, opened(one.spools.files, {0: warm}), lambda shard, epoch: True)
        load.members[0].mute = False
        load.members[0].answer_all()
        await harness.settle()
        load.check(killed=False)

    run(scenario())
