"""`$feeds/<feed>`: the state of feeds for MQTT clients (S1)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import msgspec

from feeds.registry_records import RegistryKey
from gateway.feeds.follower import FeedFollower
from gateway.feeds.service import FeedService
from gateway.feeds.topics import FeedTopics
from gateway.host.host_server import HostServer
from mqtt.codes import ReasonCode
from mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription
from schemas.events import encode
from schemas.feed_settings import FeedsSettings
from schemas.feed_words import Slot
from tests.unit.feeds.feed_beats import beat
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def states(wire: Wire) -> list[tuple[str, str, bool]]:
    """Topic, state, and whether it came as retained."""
    found = [packet for packet in wire.received if isinstance(packet, Publish)]
    return [(one.topic, json.loads(one.payload)["state"] if one.payload else "", one.retain) for one in found]


def adapter(harness: HomeHarness, feed: str, slot: Slot, seq: int) -> None:
    key = RegistryKey("adapter", feed, slot)
    value = encode(beat(slot, 1, seq)) if seq else None
    harness.bus.produce(harness.topics.feeds, 0, key.encode(), value, None, lambda *_: None)


class LongestWait(Random):
    """Draws nearly the highest number each time."""

    def random(self) -> float:
        return 0.999


@contextlib.asynccontextmanager
async def publishing(tmp_path: Path) -> AsyncIterator[tuple[HomeHarness, HostServer]]:
    harness, server = await hosted(tmp_path)
    settings: FeedsSettings = msgspec.structs.replace(harness.settings().feeds, names=["radar"])
    node = harness.node
    # How long a gateway waits with a switch is random; here both adapters are dead before it is over.
    follower = FeedFollower(
        node.bus, harness.topics.feeds, settings, "g", harness.loop_time, harness.clock, node.counts, LongestWait()
    )
    await follower.start()
    service = FeedService(follower, settings, "", harness.loop_time, harness.clock)
    topics = FeedTopics(node, harness.home, service, settings.timeout_s, harness.fatal.append)
    topics.start()
    yield harness, server
    await topics.stop()
    follower.stop()
    assert not harness.fatal
    await server.stop()


def test_each_change_comes_once_and_the_state_at_subscribe_without_kafka(tmp_path: Path) -> None:
    """S1: retained at SUBSCRIBE, then at each change; an adapter that falls silent is one; `#` does not match."""

    async def scenario() -> None:
        async with publishing(tmp_path) as (harness, server):
            await turn(1.0)
            wire = Wire(server).send(connect("c"), Subscribe(1, [Subscription("$feeds/#", 1)]))
            everything = Wire(server).send(connect("d"), Subscribe(1, [Subscription("#", 1)]))
            await turn()
            assert wire.received[1] == Suback(1, [ReasonCode.GRANTED_QOS_1])
            assert states(wire) == [("$feeds/radar", "down", True)]
            wire.received.clear()
            for slot in ("active", "backup"):
                adapter(harness, "radar", slot, 1)  # type: ignore[arg-type]
                await turn(0.1)
            await turn(2.0)
            assert [state for _, state, _ in states(wire)] == ["single", "redundant", "single", "down"]
            assert not any(retain for *_, retain in states(wire))
            assert states(everything) == []
            topics = harness.topics
            for topic in (topics.ingress, topics.egress, topics.retained):
                assert not any(harness.broker.partitions[topic, p] for p in range(2))

    run(scenario())


def test_nobody_else_publishes_there_and_a_feed_that_is_forgotten_says_so(tmp_path: Path) -> None:
    """R11: whatever the rules are."""

    async def scenario() -> None:
        async with publishing(tmp_path) as (harness, server):
            adapter(harness, "ships", "active", 1)
            await turn(0.1)
            wire = Wire(server).send(connect("c"), Publish("$feeds/radar", b"forged", qos=1, packet_id=1))
            await turn(1.0)
            assert Puback(1, ReasonCode.TOPIC_NAME_INVALID) in wire.received
            wire.send(Subscribe(2, [Subscription("$feeds/ships", 0), Subscription("$share/g/$feeds/ships", 0)]))
            await turn()
            assert Suback(2, [ReasonCode.GRANTED_QOS_0, ReasonCode.NOT_AUTHORIZED]) in wire.received
            adapter(harness, "ships", "active", 0)
            await turn(1.0)
            assert [state for _, state, _ in states(wire)][-1] == ""
            await asyncio.sleep(0)
            late = Wire(server).send(connect("e"), Subscribe(1, [Subscription("$feeds/+", 0)]))
            await turn()
            assert [topic for topic, *_ in states(late)] == ["$feeds/radar"]

    run(scenario())
