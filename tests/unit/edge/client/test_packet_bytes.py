"""limits.packet_bytes: how large a packet from the gateway may be (M2)."""

import asyncio
import logging

import pytest

from edge.client.errors import NotReachable
from edge.client.limits import Limits
from edge.errors import ConnectionLost, ReceivedTooLarge
from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.client_limits import ClientLimits
from mqtt.packets import Connect
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import client, complete
from tests.unit.edge.client.server_host import HOST, ServerHost

SMALL = Limits(packet_bytes=5_000)


@pytest.mark.parametrize("packet_bytes", [3, 4_095, 268_435_461])
def test_values_that_are_not_allowed(packet_bytes: int) -> None:
    with pytest.raises(ValueError, match="packet_bytes must be from 4096 to 268435460"):
        Limits(packet_bytes=packet_bytes)


def test_a_server_of_5_0_is_told() -> None:
    async def run() -> None:
        async with ServerHost() as server, client(server.url, limits=SMALL) as van:
            await van.connected()
            assert server.session.connects[-1].properties["maximum_packet_size"] == 5_000  # type: ignore[index]

    complete(run())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_server_of_3_1_1_cannot_be_told(qos: int, caplog: pytest.LogCaptureFixture) -> None:
    """Its message is lost, and the log says so; the messages behind it come on the same connection."""
    caplog.set_level(logging.ERROR, "waystation.client")

    async def run() -> None:
        async with ServerHost() as server, client(server.url, limits=SMALL, mqtt_version="3.1.1") as van:
            await van.subscribe("news", qos=qos)
            before = server.connections
            server.deliver("news", bytes(5_000), qos)
            server.deliver("news", b"small", qos)
            assert (await van.take_message()).payload == b"small"
            assert server.connections == before
            if qos:
                await eventually(lambda: bytes(5_000) in server.session.taken, "the server is told to forget it")

    complete(run())
    (record,) = caplog.records
    assert "to 'news' is larger than this client takes, and is lost" in record.getMessage()


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_the_limit_holds_for_the_first_packet_too(version: str) -> None:
    """With 3.1.1 also on the connection that ends an old session. The rest of the packet is not waited for."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x90\xff\xff\xff\x7f")
        await reader.read()
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(answer, HOST, 0) as server:
            url = f"mqtt://{HOST}:{server.sockets[0].getsockname()[1]}"
            async with client(url, limits=SMALL, mqtt_version=version) as van:
                with pytest.raises(NotReachable, match="is larger than 5000"):
                    await van.connected()

    complete(run())


def test_without_somebody_to_tell_the_client_ends() -> None:
    """A client that is not the library's: nothing is lost without a word."""

    async def run() -> None:
        async with ServerHost() as server:
            limits = ClientLimits(max_packet_size=5_000)
            one = MqttClient(Address(HOST, server.port), Connect("c", 4, True), limits=limits)
            await one.connect()
            await one.subscribe("news", qos=1)
            server.deliver("news", bytes(5_000), 1)
            with pytest.raises(ReceivedTooLarge, match=r"a message of 5,\d+ bytes to 'news'"):
                await anext(one.messages())
            assert not server.session.taken
            with pytest.raises((ConnectionLost, ReceivedTooLarge)):
                one.publish("t")

    complete(run())
