"""A client that comes again while what it said before is not durable yet, or while its session ends (G8, R12)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqtt.codes import ReasonCode
from schemas.identity import shard_of
from schemas.session_log import WillRecord
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


async def begin(directory: Path, **options: Any) -> tuple[HomeHarness, Client, Client]:
    """A sender, and a client that answers nothing, whose subscription to `a` is in effect."""
    harness = await HomeHarness(directory).start()
    sender, client = await harness.client("sender"), await harness.client("client", mute=True, **options)
    await client.subscribe("a")
    await turn(LEAD_S + 5)
    return harness, sender, client


def hold_what_comes_next(harness: HomeHarness, *topics: str) -> None:
    """What is on its way is stored and acknowledged, and what is written from now on is not stored."""
    harness.bus.held_stores, harness.bus.held_acks = {harness.topics.sessions, *topics}, set()
    harness.bus.release()


def test_a_pubrel_that_is_repeated_is_answered_once_it_is_durable(tmp_path: Path) -> None:
    """4.3.3: the client uses the packet id again; after a crash its message must not be taken for the earlier one."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        watcher = await harness.client("watcher")
        await watcher.subscribe("a")
        client = await harness.client("client")
        await turn(LEAD_S + 5)
        client.publish("a", b"1", 2)
        client.publish("a", b"2", 2)
        harness.bus.held_acks = {harness.topics.sessions}
        await turn(0.5)
        assert client.acknowledged == {b"1", b"2"}
        assert not client.attached.session.inbound.received, "both are released; the record with the second waits"
        client.lose()
        connecting = asyncio.ensure_future(client.connect())
        await turn(0.1)
        hold_what_comes_next(harness, harness.topics.ingress)
        await turn(0.1)
        assert not connecting.done()
        harness.crash()
        connecting.cancel()
        await harness.start()
        await watcher.connect()
        await client.connect()
        client.publish("a", b"3", 2)
        client.publish("a", b"4", 2)
        await turn(10)
        assert set(watcher.payloads) == client.acknowledged == {b"1", b"2", b"3", b"4"}

    run(scenario())


def test_pubrel_is_sent_on_the_next_connection_once_pubrec_is_durable(tmp_path: Path) -> None:
    """4.3.3: the client would forget the exchange, and take the message again after a crash."""

    async def scenario() -> None:
        harness, sender, client = await begin(tmp_path)
        sender.publish("a", b"0", 2)
        sender.publish("a", b"1", 2)
        await turn(1)
        assert client.payloads == [b"0", b"1"]
        harness.bus.held_acks = {harness.topics.sessions}
        client.answer_all()
        await turn(0.1)
        client.lose()
        client.mute = False
        connecting = asyncio.ensure_future(client.connect())
        await turn(0.1)
        hold_what_comes_next(harness)
        await turn(0.1)
        harness.crash()
        connecting.cancel()
        await harness.start()
        await client.connect()
        await turn(10)
        assert sorted(client.payloads) == [b"0", b"1"]

    run(scenario())


def test_pubrel_follows_a_repeated_pubrec_once_that_is_durable(tmp_path: Path) -> None:
    """G8, on one connection."""

    async def scenario() -> None:
        harness, sender, client = await begin(tmp_path)
        sender.publish("a", b"0", 2)
        await turn(1)
        harness.bus.held_stores = {harness.topics.sessions}
        session, home = client.attached.session, client.attached.home
        [packet_id] = session.in_flight
        released: list[int] = []
        client.take_release = released.append  # type: ignore[method-assign,assignment]
        for _ in range(2):
            home.received(session, packet_id, ReasonCode.SUCCESS)
            await turn(0.1)
            assert released == []
        harness.bus.held_stores = set()
        harness.bus.release()
        await turn(0.1)
        assert set(released) == {packet_id}

    run(scenario())


def test_a_smaller_window_holds_for_what_waited_for_the_session_log(tmp_path: Path) -> None:
    """3.3.4: ten messages were about to be sent when the connection was lost."""

    async def scenario() -> None:
        harness, sender, client = await begin(tmp_path, receive_maximum=20)
        sender.publish("a", b"0", 2)
        await turn(1)
        harness.bus.held_acks = {harness.topics.sessions}
        client.answer_all()
        for number in range(1, 11):
            sender.publish("a", b"%d" % number, 2)
        await turn(1)
        assert len(client.attached.session.in_flight) == 11
        client.lose()
        client.receive_maximum = 2
        connecting = asyncio.ensure_future(client.connect())
        await turn(1)
        harness.bus.held_acks = set()
        harness.bus.release()
        await connecting
        await turn(1)
        assert len(client.payloads) <= 3, "the first one was sent before"

    run(scenario())


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_client_gets_no_session_that_ends_as_it_comes(tmp_path: Path, is_slow: bool) -> None:
    """R12: its will and its expiry are due at the same time, and Kafka may be a little slow."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender = await harness.client("sender")
        will = WillRecord("wills/x", b"gone", 1, True, b"\0", 1000, None)
        client = await harness.client("client", will=will, expiry_s=5)
        await client.subscribe("a")
        await turn(LEAD_S + 5)
        client.lose()
        await turn(0.1)
        bus = harness.owner(shard_of("client", SHARDS)).bus
        session = client.attached.session
        while not session.wills_on_way:
            await asyncio.sleep(0.001)
        if is_slow:
            bus.held_stores = {harness.topics.ingress, harness.topics.retained}
        connecting = asyncio.ensure_future(client.connect())
        await turn(0.5)
        bus.held_stores = set()
        bus.release()
        await connecting
        await turn(1)
        assert not client.attached.session.ended
        if not client.present:
            await client.subscribe("a")
        sender.publish("a", b"1", 1)
        await turn(5)
        assert client.payloads == [b"1"]

    run(scenario())


def test_a_pubrel_before_pubrec_waits_for_it(tmp_path: Path) -> None:
    """4.3.3: a client ends an exchange whose message it has given up, while Kafka has still to store that. The packet
    id is free once PUBREC was due, else its next message would be taken for a repetition."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("client")
        completed = list[int]()
        client.take_complete = completed.append  # type: ignore[method-assign]
        harness.bus.held_stores = {harness.topics.ingress}
        packet_id = client.publish("a", b"given up", 2)
        await turn(0.1)
        client.lose()
        client.forget(packet_id)
        await client.connect()

        def release() -> None:
            assert client.link is not None
            client.attached.home.release(client.attached.session, client.link, packet_id)

        release()
        await turn(1)
        assert completed == []
        harness.bus.held_stores = set()
        harness.bus.release()
        await turn(1)
        release()
        await turn(1)
        assert completed == [packet_id]
        assert client.publish("a", b"next", 2) == packet_id
        await turn(1)
        assert client.acknowledged == {b"next"}
        stored = [
            record.value() for one in range(2) for record in harness.broker.partitions[harness.topics.ingress, one]
        ]
        assert [value for value in stored if value in (b"given up", b"next")] == [b"given up", b"next"]

    run(scenario())
