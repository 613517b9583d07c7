"""SUBSCRIBE and UNSUBSCRIBE of one session on two connections, and connections that end meanwhile (MQTT 5.0, 3.8,
3.10)."""

import asyncio
from pathlib import Path

import pytest

from mqtt.packets import Subscription
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, group_of
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("wanted", ["a", "$share/g/a"])
def test_unsubscribe_on_a_new_connection_ends_what_the_one_before_asked_for(tmp_path: Path, wanted: str) -> None:
    """Its SUBSCRIBE still waits for Kafka [MQTT-3.10.4-2]."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        sender.publish("a", b"retained", 1, retain=True)
        await turn(1)
        harness.bus.held_acks = {harness.topics.routes}
        waiting = asyncio.create_task(receiver.subscribe(wanted))
        await turn(1)
        receiver.lose()
        await receiver.connect()
        leaving = asyncio.create_task(receiver.unsubscribe(wanted))
        await turn(1)
        harness.bus.held_acks = set()
        harness.bus.release()
        await waiting
        await leaving
        for _ in range(2):
            sender.publish("a", b"unwanted", 1)
            await turn(LEAD_S + 5)
            await harness.restart()
            await receiver.connect()
        assert receiver.payloads == []
        assert not receiver.attached.session.subscriptions

    run(scenario())


def test_of_two_connections_the_later_one_says_how_a_session_subscribes(tmp_path: Path) -> None:
    """Both SUBSCRIBEs wait for Kafka."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        harness.bus.held_acks = {harness.topics.routes}
        first = asyncio.create_task(receiver.subscribe(Subscription("a", 2)))
        await turn(1)
        receiver.lose()
        await receiver.connect()
        second = asyncio.create_task(receiver.subscribe(Subscription("a", 1)))
        await turn(1)
        harness.bus.held_acks = set()
        harness.bus.release()
        await asyncio.gather(first, second)
        sender.publish("a", b"1", 2)
        await turn(LEAD_S + 5)
        assert [(got.payload, got.qos) for got in receiver.got] == [(b"1", 1)]
        await receiver.unsubscribe("a")
        await turn(100)
        assert harness.home.routes == 0

    run(scenario())


@pytest.mark.parametrize("returns", [False, True])
def test_a_member_whose_connection_ends_while_it_joins_is_away(tmp_path: Path, returns: bool) -> None:
    """Nobody is there: what comes at QoS 0 is dropped, and does not wait for it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, member = await harness.client("sender"), await harness.client("member")
        harness.bus.held_acks = {harness.topics.routes}
        waiting = asyncio.create_task(member.subscribe(NAME))
        await turn(1)
        member.lose()
        if returns:
            await member.connect()
        harness.bus.held_acks = set()
        harness.bus.release()
        await waiting
        await turn(LEAD_S + 5)
        assert group_of(harness).is_connected == returns
        sender.publish("a/b", b"while away", 0)
        await turn(5)
        await member.connect()
        await turn(5)
        assert member.payloads == [b"while away"] * returns

    run(scenario())
