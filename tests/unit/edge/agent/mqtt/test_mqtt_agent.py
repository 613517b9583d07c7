"""Agents with MQTT listeners on sockets, alone and over a gateway of Waystation (M1, M16, M20, M21)."""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from edge.agent.agent import Agent
from edge.agent.errors import ListenerError
from edge.agent.settings import AgentSettings
from edge.errors import ConnectionLost, ConnectRefused, PublishRefused
from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.packets import Connect, Publish
from schemas import password_file
from tests.faithful_client import eventually
from tests.unit.edge.agent.agent_harness import HOST, settings
from tests.unit.edge.agent.mqtt.mqtt_harness import LASTS, complete
from tests.unit.edge.agent.test_agent import NOBODY, QUICKLY, ask, url_of
from tests.unit.gateway.host.quic_client import trust
from tests.unit.gateway.host.socket_gateway import SocketGateway


def with_listener(
    directory: Path, url: str = NOBODY, name: str = "a", routes: dict[str, str] | None = None, **listener: Any
) -> AgentSettings:
    return settings(
        directory,
        client_id=name,
        platform={"connect_points": [url]},
        mqtt={"routes": routes or {"#": "platform"}, "listener": {"enabled": True, "port": 0, **listener}},
    )


class Program:
    """An MQTT client; `got` is what it has received."""

    def __init__(self, port: int, name: str, **options: Any) -> None:
        self.got: list[Publish] = []
        tls = options.pop("tls", None)
        connect = Connect(name, 5, False, 30, properties=LASTS, **options)
        self.client = MqttClient(Address(HOST, port, tls, "localhost"), connect, on_message=self.got.append)

    async def __aenter__(self) -> "Program":
        await self.client.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.disconnect()


def test_a_publish_waits_for_the_network_and_arrives_as_it_was(gateway: SocketGateway, tmp_path: Path) -> None:
    """M1, M21: to a client of another agent, and to the platform below a prefix, and from there."""

    async def run() -> None:
        properties = {"content_type": "text/plain", "user_property": [("a", "b"), ("a", "c")]}
        away = with_listener(tmp_path / "a", name="m", routes={"far/#": "@m-far"})
        async with Agent(away) as near, Program(near.mqtt_port, "device") as device:
            await device.client.publish("far/x", b"early", 2, properties=properties)
            while (await ask(away, "status"))["outbox"]["messages"] != 1:  # it is in the spool first
                await asyncio.sleep(0.02)
        routes = {"far/#": "@m-far", "up/#": "platform"}
        found = with_listener(tmp_path / "a", url_of(gateway), "m", routes, platform_prefix="sites/1/")
        other = with_listener(
            tmp_path / "far",
            url_of(gateway),
            "m-far",
            {"back/#": "@m", "down/#": "platform"},
            platform_subscriptions=True,
            platform_prefix="sites/1/",
        )
        async with Agent(other, backoff=QUICKLY) as far:
            await far.connected()
            async with Program(far.mqtt_port, "server") as server:
                await server.client.subscribe("far/#", "up/#", qos=2)
                async with Agent(found, backoff=QUICKLY) as near, Program(near.mqtt_port, "device") as device:
                    await device.client.subscribe("back/#", qos=2)
                    await eventually(lambda: len(server.got) == 1, "the early message arrives")
                    [early] = server.got
                    assert (early.topic, early.payload, early.qos) == ("far/x", b"early", 2)
                    assert early.properties == properties
                    identifier = (await ask(found, "log", count=1))[0]["id"]
                    while len(steps := await ask(found, "trace", id=identifier)) < 3:
                        await asyncio.sleep(0.02)
                    expected = [("mqtt", "accepted"), ("outbox", "handed over"), ("outbox", "acknowledged")]
                    assert [(step["part"], step["event"]) for step in steps] == expected
                    steps = await ask(other, "trace", id=identifier)
                    assert [(step["part"], step["event"]) for step in steps] == [("mqtt", "received")]
                    await server.client.publish("back/x", b"reply", 1)
                    await eventually(lambda: len(device.got) == 1, "the reply arrives")
                    # Retained: it arrives once, whether the agent has subscribed on the platform already or not.
                    await device.client.publish("up/x", b"by topic", 2, retain=True)
                    await eventually(lambda: len(server.got) == 2, "the message to the platform arrives")
                    assert (server.got[1].topic, server.got[1].payload) == ("up/x", b"by topic")

    complete(run())


def test_users_and_tls(tmp_path: Path) -> None:
    """As on any address but loopback."""
    (tmp_path / "users").write_text(password_file.with_user("", "ann", password_file.hasher().hash("right")))
    trusted = trust(tmp_path)
    tls = ssl.create_default_context(cafile=str(trusted.authority.file))
    files = {
        "password_file": str(tmp_path / "users"),
        "certificate_file": trusted.settings["certificate"],
        "key_file": trusted.settings["key"],
    }

    async def run() -> None:
        async with Agent(with_listener(tmp_path / "a", **files)) as one:
            good = {"username": "ann", "password": b"right", "tls": tls}
            async with Program(one.mqtt_port, "device", **good) as device:
                await device.client.publish("x", b"", 1)
            for bad in ({"password": b"wrong"}, {"username": "bob"}, {"username": None, "password": None}):
                with pytest.raises(ConnectRefused, match="BAD_USER_NAME_OR_PASSWORD"):
                    await Program(one.mqtt_port, "device", **(good | bad)).client.connect()

    complete(run())


def test_connections_are_limited_and_end_with_the_agent(tmp_path: Path) -> None:
    async def run() -> None:
        async with Agent(with_listener(tmp_path / "a", connections=1)) as one:
            device = Program(one.mqtt_port, "device")
            await device.client.connect()
            with pytest.raises(ConnectionLost):
                await Program(one.mqtt_port, "another").client.connect()
            with pytest.raises(PublishRefused, match="route"):
                await device.client.publish("@b", b"", 1)
            with pytest.raises(ListenerError, match="another port"):
                async with Agent(with_listener(tmp_path / "b", port=one.mqtt_port)):
                    pass
        closed = await device.client.wait_closed()
        assert "SERVER_SHUTTING_DOWN" in closed.detail or closed.reason.name == "SERVER_SHUTTING_DOWN"
        with contextlib.suppress(ConnectionLost):
            await device.client.disconnect()
        await asyncio.sleep(0)

    complete(run())
