"""`$SYS/broker/…`: what subscribers get of the gateway's own topics, and that nobody else has to do with them."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from gateway.observe.load import Load
from gateway.observe.session_stats import SessionStatsCollector
from gateway.observe.system import SystemPublisher
from gateway.shard.rules import Everything
from mqtt.codes import ReasonCode
from mqtt.packets import Connack, Puback, Publish, Suback, Subscribe, Subscription, Unsubscribe, Will
from schemas.reserved_topics import is_system
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.virtual_time import run

EXPECTED = {
    *("version", "uptime", "subscriptions/count", "retained messages/count", "store/messages/count"),
    *("store/messages/bytes", "messages/stored", "messages/received", "messages/sent", "bytes/received", "bytes/sent"),
    *(f"clients/{name}" for name in ("connected", "disconnected", "active", "inactive", "total", "maximum")),
    *(f"publish/messages/{name}" for name in ("received", "sent", "dropped")),
    *(f"messages/publish/{name}" for name in ("received", "sent", "dropped")),
}
LOADS = {
    f"load/{name}/{minutes}min"
    for name in (
        *("messages/received", "messages/sent", "publish/received", "publish/sent", "publish/dropped"),
        *("bytes/received", "bytes/sent", "sockets", "connections"),
    )
    for minutes in (1, 5, 15)
}


def values(wire: Wire) -> dict[str, bytes]:
    found = [packet for packet in wire.received if isinstance(packet, Publish)]
    return {packet.topic.removeprefix("$SYS/broker/"): packet.payload for packet in found}


@contextlib.asynccontextmanager
async def publishing(tmp_path: Path):  # type: ignore[no-untyped-def]
    harness, server = await hosted(tmp_path)
    system = SystemPublisher(harness.node, harness.home, server, SessionStatsCollector(lambda: harness.home.states))
    system.begin()
    task = asyncio.create_task(system.run())
    yield harness, server
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not harness.fatal
    await server.stop()


def test_retained_at_subscribe_then_every_interval_without_kafka_or_ledger(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with publishing(tmp_path) as (harness, server):
            wire = Wire(server).send(
                connect("c"), Subscribe(1, [Subscription("$SYS/#", 1)], {"subscription_identifier": [7]})
            )
            await turn()
            assert wire.received[1] == Suback(1, [ReasonCode.GRANTED_QOS_1])
            first = [packet for packet in wire.received if isinstance(packet, Publish)]
            assert {packet.topic.removeprefix("$SYS/broker/") for packet in first} == EXPECTED
            assert all(packet.retain and packet.qos == 0 for packet in first)
            assert all((packet.properties or {})["subscription_identifier"] == [7] for packet in first)
            assert values(wire)["version"].startswith(b"waystation version ")
            wire.received.clear()
            await turn(10)
            later = [packet for packet in wire.received if isinstance(packet, Publish)]
            assert {p.topic.removeprefix("$SYS/broker/") for p in later} == (EXPECTED | LOADS) - {"version"}
            assert not any(packet.retain for packet in later)
            assert values(wire)["uptime"] == b"10 seconds"
            assert values(wire)["clients/connected"] == values(wire)["clients/maximum"] == b"1"
            assert values(wire)["subscriptions/count"] == b"1"
            assert harness.home.routes == 0
            topics = harness.topics
            for topic in (topics.ingress, topics.egress, topics.progress, topics.routes, topics.retained):
                assert not any(harness.broker.partitions[topic, p] for p in range(2))

    run(scenario())


def test_wildcards_at_the_first_level_do_not_match_them(tmp_path: Path) -> None:
    """[MQTT-4.7.2-1]."""

    async def scenario() -> None:
        async with publishing(tmp_path) as (_, server):
            wire = Wire(server).send(
                connect("c"), Subscribe(1, [Subscription("#", 1), Subscription("+/broker/uptime", 1)])
            )
            await turn(11)
            assert values(wire) == {}

    run(scenario())


def test_one_value_by_name_until_unsubscribed_and_again_when_the_session_is_resumed(tmp_path: Path) -> None:
    """The subscription is in the session like any other; retain handling is heeded."""

    async def scenario() -> None:
        async with publishing(tmp_path) as (harness, server):
            asked = Subscription("$SYS/broker/uptime", 0, retain_as_published=True, retain_handling=2)
            wire = Wire(server).send(connect("c"), Subscribe(1, [asked]))
            await turn()
            assert values(wire) == {}
            wire.lose()
            await turn()
            wire = Wire(server).send(connect("c"))
            await turn(10)
            assert values(wire) == {"uptime": b"10 seconds"}
            assert all(packet.retain for packet in wire.received if isinstance(packet, Publish))
            wire.lose()
            await harness.restart()
            await turn()
            session = harness.home.session("c")
            assert session is not None
            assert list(session.subscriptions) == ["$SYS/broker/uptime"]
        async with publishing(tmp_path) as (_, server):
            wire = Wire(server).send(connect("d"), Subscribe(1, [asked]), Unsubscribe(2, ["$SYS/broker/uptime"]))
            await turn(11)
            assert values(wire) == {}

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("topic", ["$SYS/broker/uptime", "$SYS"])
def test_nobody_can_publish_to_them(tmp_path: Path, topic: str, qos: int) -> None:
    """0x90: well formed, but not accepted by this server (MQTT 5.0, 2.4). A will for them is refused at CONNECT."""

    async def scenario() -> None:
        async with publishing(tmp_path) as (harness, server):
            wire = Wire(server).send(connect("c"), Publish(topic, b"x", qos, packet_id=1), Publish(topic, b"x", 0))
            await turn()
            assert wire.received[1].reason_code == ReasonCode.TOPIC_NAME_INVALID  # type: ignore[union-attr]
            assert len(wire.received) == 2
            assert harness.published() == {}
            assert harness.node.counts["refused_system_topic"] == 2
            wire.send(Publish("$SYSTEM/x", b"x", 1, packet_id=1))
            await turn()
            assert wire.received[2] == Puback(1)
            will = Wire(server).send(connect("d", will=Will(topic, b"x")))
            await turn()
            assert will.received == [Connack(False, ReasonCode.TOPIC_NAME_INVALID)]

    run(scenario())


def test_rules_are_asked_as_for_any_filter(tmp_path: Path) -> None:
    class NotThat(Everything):
        open = False

        def subscribe(self, topic_filter: str) -> ReasonCode:
            return ReasonCode.NOT_AUTHORIZED if topic_filter.startswith("$SYS") else ReasonCode.SUCCESS

    async def scenario() -> None:
        async with publishing(tmp_path) as (harness, server):
            wire = Wire(server).send(connect("c"))
            await turn()
            session = harness.home.session("c")
            assert session is not None
            session.rules = NotThat()
            wire.send(Subscribe(1, [Subscription("$SYS/#", 0), Subscription("a", 0)]))
            await turn(11)
            assert wire.received[1:] == [Suback(1, [ReasonCode.NOT_AUTHORIZED, ReasonCode.GRANTED_QOS_0])]

    run(scenario())


def test_a_client_that_takes_nothing_just_then_does_without(tmp_path: Path) -> None:
    """Nothing piles up for it: the next value is the better one."""

    async def scenario() -> None:
        async with publishing(tmp_path) as (harness, server):
            wire = Wire(server).send(connect("c"), Subscribe(1, [Subscription("$SYS/#", 0)]))
            await turn()
            wire.connection.writing_paused()
            wire.received.clear()
            await turn(35)
            session = harness.home.session("c")
            assert session is not None
            assert (wire.received, session.queued) == ([], 0)
            wire.connection.writing_resumed()
            await turn(10)
            assert values(wire)["uptime"] == b"40 seconds"

    run(scenario())


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("$SYS", True), ("$SYS/#", True), ("$SYS/a/b", True), ("$SYSTEM/a", False), ("a/$SYS/b", False), ("+/a", False)],
)
def test_what_is_a_system_topic(topic: str, expected: bool) -> None:
    assert is_system(topic) is expected


def test_load_is_a_rate_a_minute_that_nears_a_steady_one() -> None:
    load, total = Load(), 0
    for _ in range(6 * 60):
        total += 50
        averages = load.update({"x": total}, 10)
    assert averages["x", 1] == pytest.approx(300)
    assert averages["x", 15] == pytest.approx(300, rel=0.05)
    averages = load.update({"x": total}, 60)
    assert averages["x", 1] == pytest.approx(300 / 2.718, rel=0.01)
    assert averages["x", 15] > averages["x", 5] > averages["x", 1] > 0
