"""What waits for MQTT clients and brokers when the operator turns these parts off (M2, M16, M20)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.agent import way
from edge.agent.agent import Agent
from edge.agent.errors import ControlError
from edge.agent.mqtt.message import MqttMessage
from edge.agent.settings import AgentSettings
from mqtt.packets import Puback
from tests.unit.edge.agent.agent_harness import settings
from tests.unit.edge.agent.mqtt.mqtt_harness import broker, complete
from tests.unit.edge.agent.test_agent import NOBODY, QUICKLY, ask, url_of
from tests.unit.edge.agent.test_mesh_agent import member
from tests.unit.gateway.host.socket_gateway import SocketGateway

MESSAGE = MqttMessage("1" * 32, "commands/1", b"x", 1)
BROKER = {"broker": {"enabled": True, "connect_point": NOBODY}}


def agent_settings(directory: Path, url: str = NOBODY, **mqtt: Any) -> AgentSettings:
    return settings(directory, platform={"connect_points": [url]}, mqtt=mqtt)


async def until(found: AgentSettings, *path: str, value: Any) -> None:
    """Waits until the status has the value there; None: it has nothing."""
    while True:
        one = await ask(found, "status")
        for name in path:
            one = (one or {}).get(name)
        if one == value:
            return
        await asyncio.sleep(0.01)


async def waits_for_broker(directory: Path) -> None:
    """As if another agent had sent it, and the agent was killed before it went on."""
    async with broker(directory) as before:
        await before.changes.make(lambda store: store.take(MESSAGE, spool=(("broker", ""),), is_local=False))


def test_what_clients_had_handed_in_is_sent_on(gateway: SocketGateway, tmp_path: Path) -> None:
    """It was acknowledged to them."""

    async def run() -> None:
        async with broker(tmp_path) as before:
            one = await before.client("one")
            one.publish("news", b"x", 1)
            await one.next(Puback)
            [waiting] = await before.spool()
        found = agent_settings(tmp_path, url_of(gateway))
        async with Agent(found, backoff=QUICKLY) as agent:
            await agent.connected()
            assert agent.mqtt_port == 0
            while way.ACKNOWLEDGED not in [step["event"] for step in await ask(found, "log", count=10)]:
                await asyncio.sleep(0.01)
            assert {step["event"] for step in await ask(found, "trace", id=waiting.message.id)} >= {way.ACKNOWLEDGED}
            assert (await ask(found, "status"))["mqtt"]["spool"] == 0

    complete(run())


def test_with_a_mesh_it_goes_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as before:
            one = await before.client("one")
            one.publish("far/x", b"x", 1)
            await one.next(Puback)
        found = member(tmp_path, "a")
        async with Agent(found, backoff=QUICKLY):
            await until(found, "mesh", "waiting_for_keys", value=1)
            await until(found, "mqtt", "spool", value=0)

    complete(run())


@pytest.mark.parametrize("is_handed_over", [False, True], ids=["in the spool", "in its outbox"])
def test_what_waits_for_a_broker_is_shown_and_can_be_discarded(tmp_path: Path, is_handed_over: bool) -> None:
    async def run() -> None:
        await waits_for_broker(tmp_path)
        if is_handed_over:
            on = agent_settings(tmp_path, **BROKER)
            async with Agent(on, backoff=QUICKLY):
                await until(on, "broker", "messages", value=1)
                await until(on, "mqtt", "spool", value=0)
        off = agent_settings(tmp_path)
        async with Agent(off, backoff=QUICKLY):
            status = await ask(off, "status")
            assert (status["broker"]["messages"], status["broker"]["problem"]) == (1, "mqtt.broker is off")
            assert await ask(off, "discard", part="broker") == 1
            assert "broker" not in (status := await ask(off, "status"))
            assert status["mqtt"]["spool"] == 0
            events = [step["event"] for step in await ask(off, "trace", id=MESSAGE.id)]
            assert (way.DROPPED in events) is not is_handed_over  # the log of its outbox goes with the outbox
        again = agent_settings(tmp_path, **BROKER)
        async with Agent(again, backoff=QUICKLY):
            await until(again, "broker", "messages", value=0)

    complete(run())


def test_what_waits_for_a_broker_stays_until_it_is_on_again(tmp_path: Path) -> None:
    async def run() -> None:
        await waits_for_broker(tmp_path)
        async with Agent(agent_settings(tmp_path), backoff=QUICKLY):
            pass
        found = agent_settings(tmp_path, **BROKER)
        async with Agent(found, backoff=QUICKLY):
            await until(found, "broker", "messages", value=1)
            with pytest.raises(ControlError, match="is on"):
                await ask(found, "discard", part="broker")
            with pytest.raises(ControlError, match="only"):
                await ask(found, "discard", part="outbox")

    complete(run())


def test_an_agent_that_never_had_mqtt_makes_no_file_for_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with Agent(agent_settings(tmp_path), backoff=QUICKLY) as agent:
            assert agent.mqtt_port == 0
        assert not (tmp_path / "mqtt").exists()

    complete(run())
