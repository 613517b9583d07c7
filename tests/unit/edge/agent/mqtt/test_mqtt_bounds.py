"""What must not stop an agent, nor make it forget or take too much: filters of old clients, full queues, HTTP."""

import asyncio
from pathlib import Path

import pytest

from edge.agent.mqtt import arrivals as arrivals_module
from edge.agent.mqtt.arrivals import Arrivals
from edge.agent.mqtt.hub import ONWARD
from edge.agent.mqtt.message import MqttMessage
from edge.agent.mqtt.platform_subscriptions import PlatformSubscriptions
from edge.agent.mqtt.store import MqttStore, Taken
from edge.client.client import Client
from edge.client.errors import StoreFull
from edge.client.message import IncomingMessage
from mqtt.packets import Publish, Pubrec, Suback, Subscribe, Subscription
from tests.unit.edge.agent.agent_harness import Clock
from tests.unit.edge.agent.mqtt.mqtt_harness import broker, complete
from tests.unit.edge.agent.mqtt.test_mqtt_exact import outbox

LARGE = bytes(49)


def incoming(number: int, qos: int = 1) -> IncomingMessage:
    return IncomingMessage(Publish("t", b"%d" % number, qos, packet_id=number), lambda _: None)


def test_arrivals_are_bounded_while_the_standin_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals_module, "WAITING_MAX", 20)
    monkeypatch.setattr(arrivals_module, "AT_ONCE", 5)
    monkeypatch.setattr(arrivals_module, "AGAIN_S", 0.01)

    async def run() -> None:
        async with broker(tmp_path) as agent, outbox(tmp_path) as (client, store):

            def full(store: MqttStore, message: MqttMessage) -> Taken:
                raise StoreFull("a subscriber's queue is full")

            there = Arrivals("platform", client, store, agent.changes, full, lambda _: None)
            running = asyncio.create_task(there.run())

            async def feed() -> None:
                for number in range(1, 301):
                    await there.arrived(incoming(number))

            feeding = asyncio.create_task(feed())
            await asyncio.wait([feeding], timeout=5.0)
            (count,) = await client.on_store(lambda _: store._db.execute("SELECT count(*) FROM arrived").fetchone())
            for task in (feeding, running):
                task.cancel()
            await asyncio.wait([feeding, running])
            assert count <= 20 + 5

    complete(run())


def test_what_may_have_been_sent_keeps_its_packet_id(tmp_path: Path) -> None:
    """The client has M1 (QoS 2, packet id P), its PUBREC is lost. M1 expires meanwhile: P must not be used again."""

    async def run() -> None:
        clock = Clock()
        async with broker(tmp_path, clock=clock) as agent:
            one, other = await agent.client("one"), await agent.client("other")
            await one.subscribe("local/#", qos=2)
            other.publish("local/a", b"1", 2, properties={"message_expiry_interval": 10})
            await other.next(Pubrec)
            first = await one.next(Publish)
            assert (first.qos, first.payload) == (2, b"1")
            one.lose()
            await agent.changes.make(lambda store: None)
            clock.now_s += 60
            await agent.changes.make(MqttStore.expire)
            held = await agent.changes.make(
                lambda store: store._db.execute("SELECT packet_id FROM delivery").fetchall()
            )
            assert held == [(first.packet_id,)], "the exchange is forgotten here, and not at the client"

    complete(run())


def test_a_clock_that_leaps_while_nothing_runs_ages_messages_by_a_day(tmp_path: Path) -> None:
    """M2: a device without a battery for its clock takes it in 1970, and has the right time at the next start."""

    async def run() -> None:
        clock = Clock()
        clock.wall_s = lambda: 60.0  # type: ignore[method-assign]
        message = MqttMessage("ab" * 16, "far/x", b"x", 1, lifetime_s=7 * 86_400)
        async with broker(tmp_path, clock=clock) as agent:
            await agent.changes.make(lambda store: store.take(message, spool=((ONWARD, "@far"),)))
        clock.wall_s = lambda: 1.7e9  # type: ignore[method-assign]
        async with broker(tmp_path, clock=clock) as agent:
            [one] = await agent.spool()
            assert one.message.lifetime_s == 6 * 86_400

    complete(run())


@pytest.mark.parametrize(
    ("limit", "not_retained", "kept"),
    [
        ({"retained_messages": 2}, 3, {"a": LARGE, "b": b"2"}),
        ({"retained_bytes": 50}, 4, {"b": b"2", "c": b"3"}),  # the older value of its topic does not stay
    ],
    ids=["number", "bytes"],
)
def test_retained_messages_of_others_beyond_the_limit_are_passed_on(
    tmp_path: Path, limit: dict[str, int], not_retained: int, kept: dict[str, bytes]
) -> None:
    """M2, M19: nobody can be told, and nothing may stop behind them. The log says which were not retained, and why."""

    async def run() -> None:
        async with broker(tmp_path, **limit) as agent:
            one = await agent.client("one")
            await one.subscribe("#", qos=1)
            for number, (topic, payload) in enumerate([("a", b"1"), ("b", b"2"), ("c", b"3"), ("a", LARGE)], 1):
                message = MqttMessage(f"{number:032x}", topic, payload, 1, retain=True)
                taken = await agent.changes.make(lambda store, message=message: store.take(message, recognise=True))
                agent.hub.distribute(taken)
                assert (await one.next(Publish)).payload == payload
                [*_, last] = await agent.changes.make(lambda store, message=message: store.steps_of(message.id))
                assert (last.event == "not retained") == (number == not_retained)
            other = await agent.client("other")
            await other.subscribe("#", qos=1)
            found = [await other.next(Publish) for _ in kept]
            assert {packet.topic: packet.payload for packet in found} == kept
            await other.none(agent)

    complete(run())


def test_what_arrives_goes_on_behind_a_retained_message_that_does_not_fit(tmp_path: Path) -> None:
    """M2: from the platform, whose messages come in order."""

    async def run() -> None:
        async with broker(tmp_path, retained_messages=1) as agent, outbox(tmp_path) as (client, store):
            one = await agent.client("one")
            await one.subscribe("#", qos=1)
            there = Arrivals("platform", client, store, agent.changes, MqttStore.take, agent.hub.distribute)
            running = asyncio.create_task(there.run())
            for number in range(1, 4):
                packet = Publish(f"t/{number}", b"%d" % number, 1, retain=number < 3, packet_id=number)
                await there.arrived(IncomingMessage(packet, lambda _: None))
            assert [(await one.next(Publish)).payload for _ in range(3)] == [b"1", b"2", b"3"]
            running.cancel()

    complete(run())


def test_a_shared_filter_of_an_old_client(tmp_path: Path) -> None:
    """3.1.1: the agent would subscribe to it on the platform, with No Local: a protocol error, at each connection."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            old = await agent.client("old", version=4)
            old.send(Subscribe(99, [Subscription("$share/g/t", 1)]))
            answer = await old.next(Suback)
            filters = await agent.changes.make(lambda store: store.sessions.filters())
            assert min(answer.reason_codes) >= 0x80 or not any(one.startswith("$share/") for one in filters)

    complete(run())


def test_subscriptions_on_the_platform_over_http(tmp_path: Path) -> None:
    """`platform_subscriptions` with an https connect point: NotSupported ends the task, and so the agent."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = await agent.client("one")
            await one.subscribe("news", qos=1)
            async with Client(client_id="van-7", connect_points=["http://127.0.0.1:1"], store=tmp_path / "o") as client:
                part = PlatformSubscriptions(client, agent.changes, asyncio.Event(), prefix="", echoes=False)
                running = asyncio.create_task(part.run())
                done, _ = await asyncio.wait([running], timeout=2)
                problem = running.exception() if done else None
                running.cancel()
                assert problem is None

    complete(run())
