"""Wills: when they are due, and that no crash loses them (G9; MQTT 5.0, 3.1.2.5 and 3.1.3.2.2)."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from gateway.shard.arrivals import LOST_CONNECTING, Arrival
from gateway.shard.rules import EVERYTHING
from schemas.session_log import WillRecord
from tests.unit.gateway.shard.home_client import ClientLink
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def will(delay_s: int = 0, payload: bytes = b"gone") -> WillRecord:
    return WillRecord("wills/x", payload, 1, False, b"\0", delay_s, None)


async def wills_seen(harness: HomeHarness) -> list[bytes]:
    await turn(0.2)
    return [payload for client in harness.clients if client.name == "watcher" for payload in client.payloads]


async def harness_with_watcher(tmp_path: Path) -> HomeHarness:
    harness = await HomeHarness(tmp_path).start()
    watcher = await harness.client("watcher")
    await watcher.subscribe("wills/#")
    return harness


@pytest.mark.parametrize("expiry_s", [0, 100])
def test_a_will_is_published_when_the_connection_is_lost_and_not_otherwise(tmp_path: Path, expiry_s: int) -> None:
    """G9; MQTT 5.0, 3.1.2.5."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        client = await harness.client("client", will=will(), expiry_s=expiry_s)
        client.disconnect()
        assert await wills_seen(harness) == []
        await client.connect()
        client.lose()
        assert await wills_seen(harness) == [b"gone"]
        await client.connect()
        await turn(1)
        client.disconnect()
        await turn(200)
        assert await wills_seen(harness) == [b"gone"]
        assert [e.event for e in harness.presence("client")][:4] == ["connected", "disconnected", "connected", "lost"]

    run(scenario())


def test_a_will_waits_for_its_delay_or_the_end_of_the_session(tmp_path: Path) -> None:
    """MQTT 5.0, 3.1.3.2.2: whichever comes first; not if the client is back before; a clean start ends it."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        client = await harness.client("client", will=will(delay_s=10, payload=b"delay"))
        client.lose()
        await turn(9)
        await client.connect()
        await turn(20)
        assert await wills_seen(harness) == []
        client.lose()
        await turn(11)
        assert await wills_seen(harness) == [b"delay"]
        client.will = will(delay_s=1_000, payload=b"clean")
        await client.connect()
        client.lose()
        await client.connect(clean_start=True)
        assert await wills_seen(harness) == [b"delay", b"clean"]
        client.will, client.expiry_s = will(delay_s=1_000, payload=b"expiry"), 20
        await client.connect()
        client.disconnect()
        await client.connect()
        client.lose()
        await turn(19)
        assert await wills_seen(harness) == [b"delay", b"clean"]
        await turn(2)
        assert await wills_seen(harness) == [b"delay", b"clean", b"expiry"]

    run(scenario())


@pytest.mark.parametrize("expiry_s", [0, 100])
@pytest.mark.parametrize("delay_s", [0, 5])
def test_a_will_survives_the_gateway(tmp_path: Path, expiry_s: int, delay_s: int) -> None:
    """G9: whoever was connected has lost the connection with the gateway; reported as lost after the connect."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        await harness.client("client", will=will(delay_s), expiry_s=expiry_s)
        await turn(1)
        await harness.restart()
        await harness.clients[0].connect()
        await turn(delay_s + 1)
        assert await wills_seen(harness) == [b"gone"]
        assert [e.event for e in harness.presence("client")] == ["connected", "lost"]
        await harness.restart()
        await harness.clients[0].connect()
        await turn(200)
        assert await wills_seen(harness) == [b"gone"]

    run(scenario())


@pytest.mark.parametrize("delay_s", [0, 5])
def test_a_crash_while_a_will_is_on_its_way_does_not_lose_it(tmp_path: Path, delay_s: int) -> None:
    """G9: the record that holds the will goes only once Kafka has the will."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        client = await harness.client("client", will=will(delay_s), expiry_s=0 if delay_s else 100)
        harness.bus.held_stores = {harness.topics.ingress}
        client.lose()
        await turn(1)
        await harness.restart()
        await harness.clients[0].connect()
        await turn(delay_s + 1)
        assert await wills_seen(harness) == [b"gone"]

    run(scenario())


def test_an_orderly_stop_publishes_wills_and_keeps_the_delayed(tmp_path: Path) -> None:
    """G9: a stopping gateway ends connections without their clients' consent."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        await harness.client("one", will=will(payload=b"one"))
        await harness.client("two", will=will(delay_s=30, payload=b"two"))
        await turn(1)
        await harness.stop()
        await turn(5)
        await harness.start()
        await harness.clients[0].connect()
        assert await wills_seen(harness) == [b"one"]
        await turn(30)
        assert await wills_seen(harness) == [b"one", b"two"]

    run(scenario())


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("held", ["acks of ingress", "stores of sessions", "acks of sessions"])
@pytest.mark.parametrize("expiry_s", [0, 100])
def test_a_will_that_kafka_has_is_not_published_again(tmp_path: Path, retain: bool, held: str, expiry_s: int) -> None:
    """G9, G8: killed between storing the will and noting that in the session log; and again while that is noted."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        last = WillRecord("wills/x", b"gone", 2, retain, b"\0", 0, None)
        client = await harness.client("client", will=last, expiry_s=expiry_s)
        await turn(1)
        what, _, topic = held.partition(" of ")
        {"acks": harness.bus.held_acks, "stores": harness.bus.held_stores}[what].add(f"{topic}")
        client.lose()
        await turn(2)
        for stored in (1, 0, 0):
            harness.crash(stored)
            await harness.start()
            harness.bus.held_acks = {harness.topics.sessions}
            await turn(2)
        await harness.restart()
        await harness.clients[0].connect()
        assert await wills_seen(harness) == [b"gone"]
        published = (
            harness.broker.partitions[harness.topics.ingress, 0] + harness.broker.partitions[harness.topics.ingress, 1]
        )
        assert len(published) == 1
        client.will = WillRecord("wills/x", b"again", 2, retain, b"\0", 0, None)
        await client.connect()
        client.lose()
        assert await wills_seen(harness) == [b"gone", b"again"]

    run(scenario())


@pytest.mark.parametrize("clean", [False, True])
def test_a_will_on_its_way_is_not_forgotten_for_the_next_connection(tmp_path: Path, clean: bool) -> None:
    """G9: CONNECT is answered once Kafka has the earlier connection's will; a crash before loses none."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        client = await harness.client("client", will=will(payload=b"first"))
        await turn(1)
        harness.bus.held_stores = {harness.topics.ingress}
        client.will = will(payload=b"second")
        connecting = asyncio.ensure_future(client.connect(clean_start=clean))
        await turn(1)
        assert not connecting.done()
        connecting.cancel()
        await harness.restart()
        await harness.clients[0].connect()
        await turn(1)
        assert await wills_seen(harness) == [b"first"]
        await client.connect()
        client.lose()
        assert await wills_seen(harness) == [b"first", b"second"]

    run(scenario())


def test_a_will_that_kafka_refuses_for_now_is_published_later(tmp_path: Path) -> None:
    """G9: until then the session log has it, also over a crash."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        for name, is_killed in (("one", False), ("two", True)):
            client = await harness.client(name, will=will(payload=name.encode()), expiry_s=100)
            await turn(1)
            harness.bus.refused = {harness.topics.ingress: KafkaError(KafkaError._QUEUE_FULL)}
            client.lose()
            await turn(1)
            if is_killed:
                await harness.restart()
                await harness.clients[0].connect()
            else:
                harness.bus.refused = {}
            await turn(30)
        assert await wills_seen(harness) == [b"one", b"two"]

    run(scenario())


def test_a_will_outlasts_a_connection_that_is_lost_before_connack(tmp_path: Path) -> None:
    """3.1.3.2.2: nobody knows that the client has come back, and its session goes on."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        client = await harness.client("client", will=will(delay_s=10), expiry_s=100)
        await turn(1)
        client.lose()
        await turn(1)
        link = ClientLink(client)
        new_will = will(delay_s=10, payload=b"new")
        arrival = Arrival("client", False, 100, new_will, 10, "peer", "mqtt5", EVERYTHING)
        attached = await harness.home.attach(arrival, link)
        attached.home.detach(attached.session, link, send_will=False, reason=LOST_CONNECTING)
        await turn(30)
        assert await wills_seen(harness) == [b"gone"]

    run(scenario())


@pytest.mark.parametrize("limit", ["retained_messages", "retained_bytes"])
def test_a_will_is_not_retained_beyond_the_limits(tmp_path: Path, limit: str) -> None:
    """R9: it is published all the same, and counted; what is retained may still be replaced and cleared."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, **{limit: 3 if limit == "retained_messages" else 40}).start()
        watcher = await harness.client("watcher")
        await watcher.subscribe("wills/#")
        for number in range(5):
            asked = WillRecord(f"wills/{number}", b"12345", 1, True, b"\0", 0, None)
            client = await harness.client(f"client-{number}", will=asked, expiry_s=0)
            client.lose()
            await turn(0.2)
        assert watcher.payloads == [b"12345"] * 5
        assert len(harness.node.retained) == harness.node.counts["refused_retained_full"] + 1 == 3
        for payload in (b"54321", b""):
            asked = WillRecord("wills/0", payload, 1, True, b"\0", 0, None)
            client = await harness.client("client-0", will=asked, expiry_s=0)
            client.lose()
            await turn(0.2)
            kept = harness.node.retained.find("wills/0")
            assert (b"" if kept is None else kept.payload) == payload

    run(scenario())


@pytest.mark.parametrize("how", ["disconnect", "clean start", "kick"])
def test_a_session_that_has_ended_stays_so_while_its_will_is_on_its_way(tmp_path: Path, how: str) -> None:
    """3.1.3.2.2, 3.1.2.11.2: the gateway is killed before Kafka has the will. That is due at once, whatever its delay,
    and the client finds no session."""

    async def scenario() -> None:
        harness = await harness_with_watcher(tmp_path)
        client = await harness.client("client", will=will(delay_s=1_000), expiry_s=10_000)
        await client.subscribe("a")
        harness.bus.held_stores = {harness.topics.ingress}
        ending = asyncio.gather(return_exceptions=True)
        if how == "disconnect":
            home, session, link = client.attached.home, client.attached.session, client.link
            assert link is not None
            home.detach(session, link, send_will=True, reason="disconnect_with_will", expiry_s=0)
        elif how == "kick":
            ending = asyncio.ensure_future(harness.home.kick("client", end_session=True))
        else:
            ending = asyncio.ensure_future(client.connect(clean_start=True))
        await turn(1)
        await harness.restart()
        ending.cancel()
        await next(one for one in harness.clients if one.name == "watcher").connect()
        await turn(1)
        assert await wills_seen(harness) == [b"gone"]
        client.will = None
        await client.connect()
        assert not client.present

    run(scenario())
