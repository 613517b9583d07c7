"""A message that was posted with a key comes once, whoever is its client's home (Q1, G6)."""

import asyncio
from pathlib import Path

import pytest

from gateway.errors import ShardLost
from gateway.host.host_server import HostServer
from gateway.http.http_publisher import HttpPublisher, Stored
from gateway.http.identity import Caller
from gateway.http.posted_message import Posted
from gateway.http.problems import Problem
from gateway.shard.rules import EVERYTHING
from mqtt.packets import Publish
from tests.unit.gateway.shard.fenced_gateways import FencedGateway, FencedGateways
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, turn
from tests.unit.gateway.shard.test_fenced_homes import named
from tests.unit.gateway.shard.virtual_time import run


class Posting:
    """The HTTP bearer of one gateway."""

    def __init__(self, harness: FencedGateways, gateway: FencedGateway) -> None:
        settings, bus = gateway.node.settings.gateway, gateway.bus
        server = HostServer(settings, gateway.home, harness.clock, lambda: bus.in_flight, harness.fatal.append)
        self._publisher = HttpPublisher(server, settings.http)
        self._caller = Caller(named(0, 1), True, EVERYTHING, "peer")

    def post(self, payload: bytes, key: str, qos: int = 1, *, retain: bool = False) -> "asyncio.Task[Stored]":
        posted = Posted(Publish("a/x", payload, qos, retain), key)
        return asyncio.ensure_future(self._publisher.publish(self._caller, posted))


@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_former_home_had_sent_is_void_behind_the_fence(tmp_path: Path, qos: int) -> None:
    """Its client was not told that it is stored; the next home stores it, and subscribers get it once."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        former, present = Posting(harness, harness.at(0)), Posting(harness, harness.at(1))
        assert not (await former.post(b"before", "k0", qos)).replayed
        harness.at(0).cut_off()
        lost = former.post(b"hello", "k1", qos)
        await turn()
        await harness.at(1).own(0, 2)
        harness.at(0).is_up = False
        client = await harness.client(named(0))
        await client.subscribe("a/#")
        await turn(LEAD_S + 5)
        assert (await present.post(b"before", "k0", qos)).replayed, "it stands before the fence"
        assert not (await present.post(b"hello", "k1", qos)).replayed
        harness.at(0).come_back()
        await turn(3)
        with pytest.raises(Problem):  # after a while
            await lost
        assert client.payloads == [b"hello"]
        assert len(harness.ids_of(b"hello")) == 1
        assert (await present.post(b"hello", "k1", qos)).replayed
        assert not harness.fatal

    run(scenario())


def test_a_former_home_does_not_say_that_a_message_is_stored(tmp_path: Path) -> None:
    """It knows the key, from before the loss: whether that counts only the log can say. So does a start: what is void
    was not stored."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        former = Posting(harness, harness.at(0))
        harness.at(0).bus.held_follows = {harness.topics.sessions}
        await harness.at(1).own(0, 2)
        first = former.post(b"hello", "k")
        await turn(1)
        again = former.post(b"hello", "k")
        await turn(1)
        assert not first.done()
        assert not again.done()
        harness.at(0).come_back()
        await turn(1)
        for one in (first, again):
            with pytest.raises(ShardLost):
                await one
        await harness.at(1).home.hand_over(0)
        del harness.at(1).spools.files[0]
        await harness.at(1).own(0, 3)
        assert not (await Posting(harness, harness.at(1)).post(b"hello", "k")).replayed

    run(scenario())


def test_a_key_works_again_once_the_shard_has_come_back(tmp_path: Path) -> None:
    """Its first message was void behind the next home's fence: nobody hears of it any more."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        here = Posting(harness, harness.at(0))
        harness.at(0).bus.held_stores = {harness.topics.retained}
        first = here.post(b"hello", "k", retain=True)
        await turn(0.5)
        await harness.at(1).own(0, 2)
        await turn(1)
        await harness.at(0).home.abandon(0)
        with pytest.raises(Problem):
            await first
        harness.at(0).come_back()
        await turn(2)
        await harness.at(1).home.hand_over(0)
        del harness.at(1).spools.files[0]
        await harness.at(0).own(0, 3)
        await turn(2)
        assert not (await here.post(b"hello", "k", retain=True)).replayed
        assert len(harness.ids_of(b"hello")) == 1
        assert not harness.fatal

    run(scenario())


def test_a_retained_message_is_known_once_a_checkpoint_is_behind_it(tmp_path: Path) -> None:
    """Its home ends while it has not read the retained copy back: the client, which got no answer, posts it again."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        harness.at(0).bus.is_consuming = False
        lost = Posting(harness, harness.at(0)).post(b"hello", "k", retain=True)
        await turn(1)
        assert len(harness.ids_of(b"hello")) == 1
        assert not lost.done()
        harness.at(0).kill()
        await harness.at(1).own(0, 2)
        await Posting(harness, harness.at(1)).post(b"hello", "k", retain=True)
        stored = [r for p in range(PARTITIONS) for r in harness.log(harness.topics.ingress, p) if r.value() == b"hello"]
        assert len(stored) == 1
        assert not harness.fatal

    run(scenario())
