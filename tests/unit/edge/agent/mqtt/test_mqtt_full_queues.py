"""A subscriber's full queue, and what comes from others, whom nobody could tell (M2, M16)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.agent.mqtt.arrivals import Arrivals
from edge.agent.mqtt.message import MqttMessage
from edge.agent.mqtt.store import MqttStore, Taken
from edge.client.message import IncomingMessage
from mqtt.packets import Puback, Publish
from tests.unit.edge.agent.mqtt.mqtt_harness import LASTS, Broker, broker, complete
from tests.unit.edge.agent.mqtt.test_mqtt_exact import outbox


async def from_another_agent(agent: Broker, number: int, payload: bytes = b"x") -> Taken:
    message = MqttMessage(f"{number:032x}", "t", payload, 1)
    taken = await agent.changes.make(lambda store: store.take(message, recognise=True))
    agent.hub.distribute(taken)
    return taken


async def stored(agent: Broker) -> int:
    """How many messages the file has for sessions."""
    return await agent.changes.make(lambda store: store._db.execute("SELECT count(*) FROM message").fetchone()[0])


@pytest.mark.parametrize("limit", [{"queue_messages": 1}, {"queue_bytes": 3}], ids=["number", "bytes"])
def test_others_get_what_a_full_queue_does_not(tmp_path: Path, limit: dict[str, Any]) -> None:
    """The newest is dropped for that session, as gateways do by default; the log says so, and the status counts."""

    async def run() -> None:
        async with broker(tmp_path, **limit) as agent:
            slow, one = await agent.client("slow"), await agent.client("one")
            await slow.subscribe("t", qos=1)
            slow.lose()
            await one.subscribe("t", qos=1)
            for number in (1, 2):
                await from_another_agent(agent, number, b"%d" % number)
                got = await one.next(Publish)
                assert got.payload == b"%d" % number
                one.send(Puback(got.packet_id))
            [*_, received] = await agent.changes.make(lambda store: store.steps_of(f"{1:032x}"))
            assert received.event == "received"
            [*_, dropped] = await agent.changes.make(lambda store: store.steps_of(f"{2:032x}"))
            assert (dropped.event, dropped.detail.startswith("for slow: ")) == ("dropped", True)
            assert (await agent.changes.make(MqttStore.status))["dropped_at_full_queues"] == 1
            slow = await agent.client("slow", present=True)
            got = await slow.next(Publish)
            assert got.payload == b"1"
            slow.send(Puback(got.packet_id))
            await from_another_agent(agent, 3, b"3")
            assert (await slow.next(Publish)).payload == b"3"

    complete(run())


def test_a_message_that_no_session_takes_leaves_nothing(tmp_path: Path) -> None:
    """M2: else the file would grow with each."""

    async def run() -> None:
        async with broker(tmp_path, queue_messages=1) as agent:
            slow = await agent.client("slow")
            await slow.subscribe("t", qos=1)
            slow.lose()
            for number in (1, 2, 3):
                taken = await from_another_agent(agent, number)
                assert taken.queued == (["slow"] if number == 1 else [])
            assert await stored(agent) == 1

    complete(run())


def test_what_arrives_goes_on_behind_a_full_queue(tmp_path: Path) -> None:
    """From the platform, whose messages come in order: mail and files come behind them."""

    async def run() -> None:
        async with broker(tmp_path, queue_messages=1) as agent, outbox(tmp_path) as (client, store):
            slow, one = await agent.client("slow"), await agent.client("one")
            await slow.subscribe("t", qos=1)
            slow.lose()
            await one.subscribe("#", qos=0)
            there = Arrivals("platform", client, store, agent.changes, MqttStore.take, agent.hub.distribute)
            running = asyncio.create_task(there.run())
            for number in range(1, 4):
                packet = Publish("t", b"%d" % number, 1, packet_id=number)
                await there.arrived(IncomingMessage(packet, lambda _: None))
            assert [(await one.next(Publish)).payload for _ in range(3)] == [b"1", b"2", b"3"]
            running.cancel()

    complete(run())


@pytest.mark.parametrize("ends", ["a clean start", "the expiry of 0", "a kill"])
def test_the_log_says_what_ends_with_a_session(tmp_path: Path, caplog: pytest.LogCaptureFixture, ends: str) -> None:
    """M2: nothing is dropped silently."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = await agent.client("one", properties=LASTS if ends == "a clean start" else {})
            await one.subscribe("t", qos=1)
            await from_another_agent(agent, 1)
            await one.next(Publish)
            if ends == "a kill":
                return
            one.lose()
            if ends == "a clean start":
                await agent.client("one", clean=True)
            await agent.changes.make(lambda store: None)

    complete(run())
    if ends == "a kill":

        async def again() -> None:
            async with broker(tmp_path):
                pass

        complete(again())
    assert "the session of the MQTT client one has ended, and 1 messages with it" in caplog.text


def test_the_log_is_quiet_about_sessions_that_end_with_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Most do: a line for each would hide the others."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = await agent.client("one", properties={})
            one.lose()
            await agent.client("one", clean=True)
            await agent.changes.make(lambda store: None)

    complete(run())
    assert "has ended" not in caplog.text
