"""Wills of the agent's MQTT clients: when they are published (M16; MQTT 5.0, 3.1.2.5 and 3.1.3.2.2)."""

from pathlib import Path

import pytest

from edge.agent.mqtt import hub
from edge.agent.mqtt.store import MqttStore
from edge.client.errors import DiskFull
from mqtt.codes import ReasonCode
from mqtt.packets import Connack, Connect, Disconnect, Publish, Will
from tests.unit.edge.agent.mqtt.mqtt_harness import LASTS, Broker, Wire, broker, complete

DELAYED = Will("local/will", b"gone", 1, properties={"will_delay_interval": 60})


async def watching(agent: Broker) -> Wire:
    """A client that gets wills."""
    watcher = await agent.client("watcher")
    await watcher.subscribe("local/will/#", qos=1)
    return watcher


def test_wills(tmp_path: Path) -> None:
    """Published if the connection breaks, not after DISCONNECT, and not if the client is back within the delay."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            watcher = await watching(agent)
            one = await agent.client("one", will=Will("local/will/1", b"gone", 1))
            one.send(Disconnect())
            await one.closed()
            await watcher.none(agent)
            later = {"will_delay_interval": 60}
            one = await agent.client("one", will=Will("local/will/2", b"gone", 1, properties=later), present=True)
            one.lose()
            one = await agent.client("one", will=Will("local/will/3", b"gone", 1), present=True)
            one.lose()
            assert (await watcher.next(Publish)).topic == "local/will/3"

    complete(run())


def test_a_delayed_will_of_a_session_that_ends_is_published_then(tmp_path: Path) -> None:
    """3.1.2.5: a clean start ends it. Not 3.1.3.2.2: the session does not go on."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            watcher = await watching(agent)
            one = await agent.client("one", will=DELAYED)
            one.lose()
            await agent.client("one", clean=True)
            assert (await watcher.next(Publish)).payload == b"gone"

    complete(run())


def test_another_user_does_not_stop_a_delayed_will(tmp_path: Path) -> None:
    """Who is refused has no part in the session: the will waits until that ends."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            watcher = await watching(agent)
            one = await agent.client("one", will=DELAYED, username="ann")
            one.lose()
            other = agent.wire()
            other.send(Connect("one", 5, False, 60, "eve", None, None, LASTS))
            assert (await other.next(Connack)).reason_code == ReasonCode.NOT_AUTHORIZED
            await watcher.none(agent)
            await agent.client("one", username="ann", clean=True)
            assert (await watcher.next(Publish)).payload == b"gone"

    complete(run())


def test_a_will_waits_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else has it: its client is gone."""
    monkeypatch.setattr(hub, "AGAIN_S", 0.01)
    save_clock, failures = MqttStore.save_clock, [DiskFull("the disk is full") for _ in range(5)]

    def save(store: MqttStore) -> None:
        if failures:
            raise failures.pop()
        save_clock(store)

    async def run() -> None:
        async with broker(tmp_path) as agent:
            watcher = await watching(agent)
            clients = [await agent.client(name, will=Will("local/will", name.encode(), 1)) for name in ("one", "two")]
            with monkeypatch.context() as patch:
                patch.setattr(MqttStore, "save_clock", save)
                for one in clients:
                    one.lose()
                found = {(await watcher.next(Publish)).payload for _ in clients}
            assert found == {b"one", b"two"}
            await watcher.none(agent)

    complete(run())
