"""The client library against mosquitto and against our gateway, and killed for real (M2, G8, G13).

A process of its own publishes and is killed with SIGKILL at random moments, again and again. Its standard output names
what it was told is accepted.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.packets import Connect, Publish
from tests import draw
from tests.faithful_client import eventually
from tests.integration.edge.publisher_process import killed_after
from tests.mosquitto import HOST, Mosquitto
from tests.unit.gateway.host.socket_gateway import SocketGateway
from waystation import Client

VERSIONS = {"3.1.1": 4, "5.0": 5}
versioned = pytest.mark.parametrize("version", VERSIONS)


def url(broker: Mosquitto) -> str:
    return f"mqtt://{HOST}:{broker.port}"


@versioned
@pytest.mark.parametrize("server", ["mosquitto", "gateway"])
def test_killed_again_and_again(tmp_path: Path, version: str, server: str) -> None:
    """Exactly once at QoS 2, at least once at QoS 1, nothing that was accepted is missing, and in order."""
    got: list[Publish] = []
    choice = draw.generator("kills of the client")

    async def run(port: int) -> None:
        arguments = f"mqtt://{HOST}:{port}", version, str(tmp_path / "outbox")
        reader = MqttClient(Address(HOST, port), Connect("reader", 5), on_message=got.append)
        await reader.connect()
        await reader.subscribe("n", qos=2)
        accepted: list[int] = []
        for _ in range(6):
            accepted += await killed_after(choice.uniform(0.0, 0.4), *arguments)
        assert accepted
        async with Client(
            client_id="publisher", connect_points=[arguments[0]], store=arguments[2], mqtt_version=version
        ) as last:
            await last.drained()
            everything = range(1, last._outbox.last_sequence + 1)
        await eventually(lambda: len({m.payload for m in got}) == len(everything), "everything arrives")
        await reader.disconnect()
        counts = Counter(int(message.payload) for message in got)
        assert set(counts) == set(everything) >= set(accepted)
        assert all(counts[number] == 1 for number in everything if number % 2), "twice at QoS 2"
        exactly_once = [int(message.payload) for message in got if message.qos == 2]
        assert exactly_once == sorted(exactly_once)

    if server == "gateway":
        with SocketGateway(tmp_path / "gateway") as gateway:
            asyncio.run(asyncio.wait_for(run(gateway.mqtt_port), 120))
    else:
        with Mosquitto(tmp_path, "allow_anonymous true", "max_queued_messages 0") as broker:
            asyncio.run(asyncio.wait_for(run(broker.port), 120))


@versioned
@pytest.mark.parametrize("bearer", ["mqtt", "ws"])
def test_away_and_back(tmp_path: Path, version: str, bearer: str) -> None:
    """The broker is away, comes, goes and comes again; the application only publishes and reads."""

    async def run(broker: Mosquitto) -> None:
        point = url(broker) if bearer == "mqtt" else f"ws://{HOST}:{broker.websocket_port}"
        async with Client(
            client_id="van-7", connect_points=[point], store=tmp_path / "outbox", mqtt_version=version
        ) as van:
            first = [await van.publish("log", b"%d" % number, qos=number % 3) for number in range(30)]
            broker.start()
            assert await van.subscribe("log", qos=2) == [2]
            for message in first:
                await message.acknowledged
            broker.stop()
            second = [await van.publish("log", b"%d" % number, qos=2) for number in range(30, 60)]
            broker.start()
            for message in second:
                await message.acknowledged
            got: set[int] = set()
            async for incoming in van.messages():
                got.add(int(incoming.payload))
                if got >= set(range(30, 60)):
                    break

    broker = Mosquitto(tmp_path)
    try:
        asyncio.run(asyncio.wait_for(run(broker), 60))
    finally:
        broker.stop()


def test_requests_between_two_clients(tmp_path: Path) -> None:
    """On a server without inboxes of its own."""

    async def run(broker: Mosquitto) -> None:
        points = [url(broker)]
        async with (
            Client(client_id="asker", connect_points=points) as asker,
            Client(client_id="answerer", connect_points=points) as answerer,
        ):
            await answerer.subscribe("question", qos=1)
            asking = asyncio.create_task(asker.request("question", "6 x 7", timeout_s=20))
            question = await anext(answerer.messages())
            await answerer.reply(question, "42")
            assert (await asking).payload == b"42"

    with Mosquitto(tmp_path) as broker:
        asyncio.run(asyncio.wait_for(run(broker), 60))
