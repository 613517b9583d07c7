"""A will comes once over a change of owner, whoever publishes it and at whichever step (G9, Q7; MQTT 5.0, 3.1.2.5)."""

import asyncio
from pathlib import Path

import pytest

from schemas.session_log import WillRecord
from tests.draw import some
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run


def will(qos: int, delay_s: int = 0, *, retain: bool = False) -> WillRecord:
    return WillRecord("wills/x", b"gone", qos, retain, b"\0", delay_s, None)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("rounds", some(range(1, 60), 2, "rounds of a change of owner"))
def test_both_owners_publish_it(tmp_path: Path, qos: int, retain: bool, rounds: int) -> None:
    """The earlier one, which stood still, sends its copy at some step of the change, before or behind the fence."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        client = await harness.client(harness.names(0)[0], will=will(qos, retain=retain), expiry_s=100)
        watcher = await harness.client(harness.names(1)[0])
        await watcher.subscribe("wills/#")
        await turn(LEAD_S + 5)
        zombie = harness.cut_off(0)
        client.lose()
        await turn()
        harness.stand_still(zombie)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_at_turn(loop.turns + rounds, lambda: harness.wake(zombie))
        await harness.take_over(0, harness.gateways[2])
        await turn(200)
        assert watcher.payloads == [b"gone"]
        assert harness.relinquished() == harness.instructions()
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("delay_s", [0, 5])
@pytest.mark.parametrize("rounds", some(range(1, 160), 3, "rounds of a will"))
def test_its_owner_dies_at_each_step(tmp_path: Path, delay_s: int, rounds: int) -> None:
    """Two owners, one after the other: also while the second looks for it on `ingress`."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        client = await harness.client(harness.names(0)[0], will=will(2, delay_s), expiry_s=100)
        watcher = await harness.client(harness.names(1)[0])
        await watcher.subscribe("wills/#")
        await turn(LEAD_S + 5)
        client.lose()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        first, second = harness.gateways[0], harness.gateways[2]
        loop.call_at_turn(loop.turns + rounds, first.kill)
        await turn(delay_s + 0.1)
        first.kill()
        loop.call_at_turn(loop.turns + rounds, second.kill)
        taking = asyncio.create_task(harness.take_over(0, second))
        await turn(delay_s + 0.1)
        taking.cancel()
        second.kill()
        await harness.take_over(0, harness.gateways[1])
        await turn(200)
        assert watcher.payloads == [b"gone"]
        assert not harness.fatal

    run(scenario())


def test_a_void_will_is_published_by_the_owner_after_the_next(tmp_path: Path) -> None:
    """Its copy stands behind a fence that is not read again."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        client = await harness.client(harness.names(0)[0], will=will(1, delay_s=300), expiry_s=1_000)
        watcher = await harness.client(harness.names(1)[0])
        await watcher.subscribe("wills/#")
        await turn(LEAD_S + 5)
        client.lose()
        await turn(298)
        zombie = harness.cut_off(0)
        await harness.take_over(0, harness.gateways[2])
        await turn(60)
        assert watcher.payloads == [b"gone"]
        harness.stand_still(zombie)
        harness.wake(zombie)
        harness.gateways[2].kill()
        await harness.take_over(0, harness.gateways[1])
        await turn(60)
        assert watcher.payloads == [b"gone"]

    run(scenario())
