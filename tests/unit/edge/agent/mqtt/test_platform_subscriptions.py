"""What the agent subscribes to on the platform for clients here, and that it ends what is not needed (M16, M21)."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import pytest

from edge.agent.mqtt.message import MqttMessage
from edge.agent.mqtt.platform_subscriptions import PlatformSubscriptions
from edge.agent.mqtt.store import MqttStore
from edge.agent.mqtt.topic_routes import PLATFORM
from edge.client.client import Client
from mqtt.encode import encode
from mqtt.packets import Puback, Subscribe, Subscription, Unsuback, Unsubscribe
from tests.faithful_client import eventually
from tests.unit.edge.agent.mqtt.mqtt_harness import Broker, Wire, broker, complete


class Platform:
    """In the place of a client: what is subscribed there. Packets that MQTT does not allow raise its errors."""

    def __init__(self, *filters: str) -> None:
        self.filters = set(filters)
        self.asked: list[str] = []

    async def subscribe(self, wanted: Subscription) -> None:
        encode(Subscribe(1, [wanted]), 5)
        self.filters.add(wanted.filter)
        self.asked.append(wanted.filter)

    async def ended(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def unsubscribe(self, topic_filter: str) -> None:
        encode(Unsubscribe(1, [topic_filter]), 5)
        self.filters.discard(topic_filter)


@asynccontextmanager
async def subscribed(agent: Broker, platform: Platform, **options: Any) -> AsyncIterator["asyncio.Task[None]"]:
    part = PlatformSubscriptions(
        cast(Client, platform),
        agent.changes,
        agent.hub.filters_changed,
        **({"prefix": "", "echoes": False} | options),
    )
    running = asyncio.create_task(part.run())
    try:
        yield running
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.wait([running])


async def unsubscribe(wire: Wire, topic_filter: str) -> None:
    wire.send(Unsubscribe(7, [topic_filter]))
    await wire.next(Unsuback)


async def known(agent: Broker) -> set[str]:
    return await agent.changes.make(lambda store: store.far_filters(PLATFORM))


@pytest.mark.parametrize("inbox", ["@van-7", "@shop-1", "@van-7/#"])
def test_inboxes_are_not_subscribed_for_clients_here(tmp_path: Path, inbox: str) -> None:
    """What comes to the agent's inbox is for the agent. A client here could end the agent's own subscription, or have
    it take what is for another agent."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            platform = Platform("@van-7")
            one = await agent.client("one")
            async with subscribed(agent, platform):
                await one.subscribe(inbox, "news")
                await eventually(lambda: "news" in platform.filters, "the other filter is subscribed")
                await unsubscribe(one, inbox)
                await unsubscribe(one, "news")
                await eventually(lambda: "news" not in platform.filters, "the other filter is unsubscribed")
                assert platform.filters == {"@van-7"}
                assert platform.asked == ["news"]

    complete(run())


def test_a_filter_that_no_packet_holds_does_not_end_the_agent(tmp_path: Path) -> None:
    """With the prefix it is longer than MQTT allows: neither to subscribe, nor to unsubscribe."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            platform = Platform()
            one = await agent.client("one")
            async with subscribed(agent, platform, prefix="sites/1/"):
                long = "x" * 65_530
                await one.subscribe(long, "news")
                await eventually(lambda: platform.filters == {"sites/1/news"}, "the other filter is subscribed")
                await unsubscribe(one, long)
                await unsubscribe(one, "news")
                await eventually(lambda: not platform.filters, "the other filter is unsubscribed")
                while await known(agent):
                    await asyncio.sleep(0)

    complete(run())


@pytest.mark.parametrize(
    ("then", "left"),
    [({"prefix": "new/"}, {"new/news"}), ({"prefix": ""}, {"news"}), ({"is_on": False}, set())],
    ids=["another prefix", "no prefix", "off"],
)
def test_what_other_settings_had_subscribed_is_unsubscribed(
    tmp_path: Path, then: dict[str, Any], left: set[str]
) -> None:
    """The session on the platform outlasts a restart: the platform would send it for ever."""

    async def run() -> None:
        platform = Platform()
        async with broker(tmp_path) as agent:
            one = await agent.client("one")
            async with subscribed(agent, platform, prefix="old/"):
                await one.subscribe("news")
                await eventually(lambda: platform.filters == {"old/news"}, "it is subscribed")
        async with broker(tmp_path) as agent, subscribed(agent, platform, **({"prefix": "old/"} | then)):
            await eventually(lambda: platform.filters == left, "only what is asked for is subscribed")
            while await known(agent) != left:
                await asyncio.sleep(0)

    complete(run())


async def from_platform(agent: Broker, topic: str, prefix: str = "") -> None:
    """A retained message of the platform arrives."""
    message = MqttMessage("0" * 32, topic, b"x", 1, True)
    await agent.changes.make(lambda store: store.take(message, platform_topic=prefix + topic))


async def retained(agent: Broker) -> list[str]:
    """The topics of what a new subscriber would get."""

    def find(store: MqttStore) -> list[str]:
        return [topic for (topic,) in store._db.execute("SELECT topic FROM retained ORDER BY topic")]

    return await agent.changes.make(find)


def test_retained_copies_end_with_the_last_subscription_that_asked_for_them(tmp_path: Path) -> None:
    """Nobody tells the agent what becomes of them on the platform afterwards. What was published here stays."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            platform = Platform()
            one, other = await agent.client("one"), await agent.client("other")
            async with subscribed(agent, platform, prefix="sites/1/"):
                await one.subscribe("news/#")
                await other.subscribe("news/a")
                one.publish("news/own", b"x", 1, retain=True)
                await one.next(Puback)
                for topic in ("news/a", "news/b"):
                    await from_platform(agent, topic, "sites/1/")
                assert await retained(agent) == ["news/a", "news/b", "news/own"]
                await unsubscribe(one, "news/#")
                while await known(agent) != {"sites/1/news/a"}:
                    await asyncio.sleep(0)
                assert await retained(agent) == ["news/a", "news/own"]
                await unsubscribe(other, "news/a")
                while await known(agent):
                    await asyncio.sleep(0)
                await from_platform(agent, "news/a", "sites/1/")  # it was on its way
                assert await retained(agent) == ["news/own"]

    complete(run())


def test_retained_copies_end_with_the_settings_that_brought_them(tmp_path: Path) -> None:
    async def run() -> None:
        platform = Platform()
        async with broker(tmp_path) as agent:
            one = await agent.client("one")
            async with subscribed(agent, platform, prefix="old/"):
                await one.subscribe("news")
                await from_platform(agent, "news", "old/")
                await eventually(lambda: platform.filters == {"old/news"}, "it is subscribed")
        async with broker(tmp_path) as agent, subscribed(agent, platform, prefix="new/"):
            while await known(agent) != {"new/news"}:
                await asyncio.sleep(0)
            assert await retained(agent) == []

    complete(run())


def test_a_file_without_the_origin_of_retained_messages_is_read(tmp_path: Path) -> None:
    """Of an earlier version: what it holds stays."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = await agent.client("one")
            one.publish("news", b"x", 1, retain=True)
            await one.next(Puback)
        with closing(sqlite3.connect(tmp_path / "mqtt")) as db:
            db.execute("ALTER TABLE retained DROP COLUMN platform_topic")
        async with broker(tmp_path) as agent:
            assert await retained(agent) == ["news"]

    complete(run())
