"""What the agent's MQTT listener refuses: beyond its limits, without space on disk, and hostile bytes (M2, M16)."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from edge.agent.mqtt import hub, outgoing
from edge.agent.mqtt.sessions import Sessions
from edge.agent.mqtt.store import MqttStore
from edge.client.errors import DiskFull, StoreFailed
from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from tests import draw
from tests.fuzz.mutate import mutate_stream, split
from tests.unit.edge.agent.agent_harness import Clock
from tests.unit.edge.agent.mqtt.mqtt_harness import LASTS, broker, complete

versions = pytest.mark.parametrize("version", [4, 5])
REFUSED = ReasonCode.QUOTA_EXCEEDED


def test_limits(tmp_path: Path) -> None:
    """M2: sessions, packets, inflight; and a session is its user's."""

    async def run() -> None:
        async with broker(tmp_path, sessions=2, packet_bytes=200, inflight=2) as agent:
            one = await agent.client("one", username="ann", properties={**LASTS, "receive_maximum": 1})
            bob = agent.wire()
            bob.send(Connect("one", 5, False, username="bob"))
            assert (await bob.next(Connack)).reason_code == ReasonCode.NOT_AUTHORIZED
            assert not one.is_closed
            one.lose()
            bob = agent.wire()
            bob.send(Connect("one", 5, False, username="bob"))
            assert (await bob.next(Connack)).reason_code == ReasonCode.NOT_AUTHORIZED
            one = await agent.client("one", username="ann", present=True, properties={**LASTS, "receive_maximum": 1})
            await one.subscribe("local/#", qos=1)
            await agent.client("two")
            three = agent.wire()
            three.send(Connect("three"))
            assert (await three.next(Connack)).reason_code == REFUSED
            for packet_id in (1, 2):
                one.publish("local/x", b"%d" % packet_id, 1, packet_id)
                await one.next(Puback)
            first = await one.next(Publish)
            await one.none(agent)  # the client's own window is full: the other one stays in the queue
            one.send(Puback(first.packet_id))
            assert (await one.next(Publish)).payload == b"2"
            one.feed(encode(Publish("local/x", bytes(300), 1, packet_id=3), 5))
            assert (await one.next(Disconnect)).reason_code == ReasonCode.PACKET_TOO_LARGE
            await one.closed()

    complete(run())


def test_a_client_that_does_not_read_its_answers_ends(tmp_path: Path) -> None:
    """Its requests cost it nothing, and the answers would fill the memory."""

    async def run() -> None:
        async with broker(tmp_path, write_buffer_bytes=1_000) as agent:
            one, other = await agent.client("one"), await agent.client("other")
            one.feed(encode(Pingreq(), 5) * 1_000)
            for _ in range(10):
                one.reads(False)
                one.feed(encode(Pingreq(), 5) * 500)
                assert not one.is_closed
                one.reads(True)
            one.reads(False)
            one.feed(encode(Pingreq(), 5) * 500)
            assert not one.is_closed
            one.feed(encode(Pingreq(), 5))
            assert (await one.next(Disconnect)).reason_code == ReasonCode.QUOTA_EXCEEDED
            await one.closed()
            other.feed(encode(Pingreq(), 5))
            await other.next(Pingresp)

    complete(run())


def test_deliveries_wait_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    """Also those that are being read from the disk when it stops. They are no answers, and do not end it."""

    async def run() -> None:
        async with broker(tmp_path, write_buffer_bytes=1_000) as agent:
            one, other = await agent.client("one"), await agent.client("other")
            await one.subscribe("local/a", qos=1)
            other.publish("local/a", bytes(5_000), 1)
            await other.next(Puback)
            one.reads(False)
            await one.none(agent)
            one.reads(True)
            assert (await one.next(Publish)).payload == bytes(5_000)

    complete(run())


@versions
def test_a_full_disk_refuses_and_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """M2: nothing is taken; what was subscribed meanwhile is not; clients that wait are served again."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one, other = await agent.client("one", version), await agent.client("other", version)
            await other.subscribe("local/a", qos=1)

            def full(store: MqttStore) -> None:
                raise DiskFull("the disk is full")

            with monkeypatch.context() as patch:
                patch.setattr(MqttStore, "save_clock", full)
                one.publish("local/a", b"1", 1)
                if version == 5:
                    assert (await one.next(Puback)).reason_code == REFUSED
                    await agent.changes.make(lambda store: store.status())  # reading goes on
                else:
                    await one.closed()
                other.send(Subscribe(7, [Subscription("local/b", 1)]))
                await other.closed()
                other.lose()
                one.lose()
            one = await agent.client("one", version, present=True)
            other = await agent.client("other", version, present=True)
            one.publish("local/b", b"2", 1)
            await one.next(Puback)
            await other.none(agent)
            one.publish("local/a", b"3", 1)
            assert (await other.next(Publish)).payload == b"3"

    complete(run())


def test_a_delivery_that_ends_while_the_disk_is_full_leaves_it_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was acknowledged, has expired or is too large for the client; its connection stays."""
    monkeypatch.setattr(outgoing, "AGAIN_S", 0.01)
    clock = Clock()

    async def run() -> None:
        async with broker(tmp_path, clock=clock) as agent:
            one = await agent.client("one", properties={**LASTS, "receive_maximum": 1, "maximum_packet_size": 500})
            other = await agent.client("other")
            await one.subscribe("local/a", qos=1)
            other.publish("local/a", b"acknowledged", 1)
            other.publish("local/a", b"expired", 1, 2, properties={"message_expiry_interval": 5})
            other.publish("local/a", bytes(1_000), 1, 3)
            other.publish("local/a", b"last", 1, 4)
            first = await one.next(Publish)
            for _ in range(4):
                await other.next(Puback)
            clock.now_s += 10
            failures = 0

            def full(store: MqttStore) -> None:
                nonlocal failures
                failures += 1
                raise DiskFull("the disk is full")

            with monkeypatch.context() as patch:
                patch.setattr(MqttStore, "save_clock", full)
                one.send(Puback(first.packet_id))
                last = await one.next(Publish)
                assert (first.payload, last.payload) == (b"acknowledged", b"last")
                async with asyncio.timeout(20):
                    while failures < 4:
                        await asyncio.sleep(0.01)
            one.send(Puback(last.packet_id))
            async with asyncio.timeout(20):
                while (await agent.changes.make(MqttStore.status))["waiting_for_clients"]:
                    await asyncio.sleep(0.01)
            assert not one.is_closed

    complete(run())


@pytest.mark.parametrize("error", [DiskFull, StoreFailed])
def test_a_session_ends_though_the_store_failed_when_its_client_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(hub, "AGAIN_S", 0.01)
    leave, failures = Sessions.leave, [error("the disk does not work")] * 2

    def failing(sessions: Sessions, *arguments: Any) -> None:
        if failures:
            raise failures.pop()
        leave(sessions, *arguments)

    monkeypatch.setattr(Sessions, "leave", failing)

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = await agent.client("one", properties={})
            one.lose()
            async with asyncio.timeout(20):
                while (await agent.changes.make(MqttStore.status))["sessions"]:
                    await asyncio.sleep(0.01)

    complete(run())


def test_hostile_bytes_end_the_one_connection_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Streams with mutated packets: whatever comes, the other client is served."""
    choice = draw.generator("hostile MQTT clients")
    packets = [
        Connect("hostile", 5, False, 60, "u", b"p", Will("far/w", b"w", 1), {"session_expiry_interval": 10}),
        Subscribe(1, [Subscription("#", 2), Subscription("far/+", 1)], {"subscription_identifier": [3]}),
        Publish("far/x", b"x", 0),
        Publish("far/x", b"x", 1, packet_id=1, properties={"user_property": [("a", "b")], "topic_alias": 1}),
        Publish("far/x", b"x", 2, packet_id=2, properties={"message_expiry_interval": 5}),
        Pubrel(2),
        Puback(1),
        Pubrec(2),
        Pubcomp(3),
        Pingreq(),
        Unsubscribe(5, ["#"]),
        Disconnect(),
    ]
    seeds = split(b"".join(encode(packet, 5) for packet in packets))

    def blind(data: bytes) -> bytes:
        at = choice.randrange(len(data) + 1)
        return data[:at] + bytes([choice.randrange(256)]) + data[at + choice.randrange(2) :]

    async def run() -> None:
        async with broker(tmp_path, sessions=10_000, messages=100_000) as agent:
            good = await agent.client("good")
            for _ in range(draw.times(100, 3_000)):
                rng = random.Random(choice.random())
                stream = b"".join(encode(packet, 5) for packet in packets)
                hostile = agent.wire(0)
                hostile.feed(mutate_stream(stream, rng, blind, seeds))
                await asyncio.sleep(0)
                if rng.random() < 0.5:
                    hostile.feed(rng.randbytes(20))
                for _ in range(3):
                    await agent.changes.make(lambda store: None)
                hostile.lose()
            good.publish("local/x", b"", 1)
            assert await good.next(Puback) == Puback(1)

    complete(run())
    assert not [record for record in caplog.records if record.exc_info]
