"""A client's link over QUIC: whom it trusts, what it says when it fails, and networks that change (G11)."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from edge import quic_link
from edge.errors import ConnectionLost, Unreachable
from edge.link import Address, QuicTls
from edge.mqtt_client import MqttClient
from edge.reconnect import FullJitter, StayConnected
from harness.keys import Authority
from mqtt.client_limits import ClientLimits
from mqtt.packets import Connect, Publish
from tests.unit.gateway.host.quic_client import Nat, Trust, payloads, run, trust, until
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return trust(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def quic(tmp_path_factory: pytest.TempPathFactory, trusted: Trust) -> Iterator[SocketGateway]:
    with SocketGateway(tmp_path_factory.mktemp("quic"), tls=trusted.settings) as gateway:
        yield gateway


def fails(address: Address, limits: ClientLimits | None = None) -> str:
    """What connecting there says."""

    async def scenario() -> None:
        with pytest.raises(Unreachable) as raised:
            await MqttClient(address, Connect("c"), limits=limits).connect()
        said.append(str(raised.value))

    said: list[str] = []
    run(scenario())
    return said[0]


def test_a_certificate_of_another_authority(quic: SocketGateway, tmp_path: Path) -> None:
    said = fails(Address(HOST, quic.quic_port, quic=QuicTls(str(Authority(tmp_path, "other").file))))
    assert "the QUIC handshake failed" in said
    assert "certificate" in said


def test_the_authorities_of_the_system_do_not_know_ours(quic: SocketGateway) -> None:
    assert "certificate" in fails(Address(HOST, quic.quic_port, quic=QuicTls()))


def test_a_certificate_for_another_name(quic: SocketGateway, trusted: Trust) -> None:
    tls = QuicTls(str(trusted.authority.file))
    assert "other.example" in fails(Address(HOST, quic.quic_port, server_hostname="other.example", quic=tls))


def test_nobody_listens(quic: SocketGateway, trusted: Trust) -> None:
    said = fails(Address(HOST, 1, quic=QuicTls(str(trusted.authority.file))))
    assert said.startswith(f"{HOST}:1 cannot be reached: ")


def test_nobody_answers(trusted: Trust) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        silent, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=(HOST, 0))
        client = trusted.client("c", silent.get_extra_info("sockname")[1], limits=ClientLimits(connect_timeout_s=0.3))
        with pytest.raises(Unreachable, match="did not answer"):
            await client.connect()
        silent.close()

    run(scenario())


@pytest.mark.parametrize("file", ["", "nothing"])
def test_authorities_that_cannot_be_read(quic: SocketGateway, tmp_path: Path, file: str) -> None:
    (tmp_path / "nothing").write_text("nothing")
    said = fails(Address(HOST, quic.quic_port, quic=QuicTls(str(tmp_path / file) if file else "/nowhere")))
    assert "cannot be used" in said if file else "cannot read /nowhere" in said


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_everything_arrives_over_either_loop(quic: SocketGateway, trusted: Trust, loop: object) -> None:
    """Much at QoS 0, which waits for the network, and large messages; then all of it before the end."""
    topic = f"much/{loop is uvloop.run}"

    async def scenario() -> None:
        got: list[Publish] = []
        reader = trusted.client(f"reader-{topic}", quic.quic_port, on_message=got.append)
        await reader.connect()
        await reader.subscribe(topic, qos=0)
        writer = trusted.client(f"writer-{topic}", quic.quic_port)
        await writer.connect()
        for number in range(50):
            writer.publish(topic, b"%02d" % number + bytes(60_000))
            await writer.drain()
        await writer.disconnect()
        await until(lambda: len(got) == 50)
        assert [payload[:2] for payload in payloads(got)] == [b"%02d" % number for number in range(50)]
        await reader.disconnect()

    loop(asyncio.wait_for(scenario(), 20))  # type: ignore[operator]


def test_a_socket_that_fails_is_replaced(quic: SocketGateway, trusted: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system says that there is no route any more; once there is one, the connection goes on."""
    monkeypatch.setattr(quic_link, "_MOVE_INTERVAL_S", 0.01)

    async def scenario() -> None:
        client = trusted.client("roams", quic.quic_port)
        await client.connect()
        assert client._driver is not None
        link = client._driver._link
        assert isinstance(link, quic_link.QuicLink)
        changes, away = quic.count("quic_address_changes"), 3
        opens = quic_link._open_socket

        async def no_network(*arguments: object) -> object:
            nonlocal away
            away -= 1
            if away:
                raise OSError(errno.ENETUNREACH, "Network is unreachable")
            return await opens(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(quic_link, "_open_socket", no_network)
        assert link._udp is not None
        link._udp.error_received(OSError(errno.ENETUNREACH, "Network is unreachable"))
        await until(lambda: quic.count("quic_address_changes") == changes + 1)
        assert away == 0
        await client.publish("t", b"still here", 1)
        link._udp.error_received(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
        await client.publish("t", b"a forged error ends nothing", 1)
        await client.disconnect()

    run(scenario())


def test_a_lost_connection_is_replaced(quic: SocketGateway, trusted: Trust) -> None:
    """`StayConnected` works as over TCP, and `abort` breaks at once."""

    async def scenario() -> None:
        client = trusted.client("stays", quic.quic_port)
        async with StayConnected(client, FullJitter(0.01, 0.02)):
            await client.wait_connected()
            client.abort()
            await until(lambda: client.connections == 2 and client.is_connected)
            await client.publish("t", b"x", 2)
            await client.disconnect()
        with pytest.raises(ConnectionLost):
            await client.wait_connected()
        await client.network_changed()

    run(scenario())


@pytest.mark.parametrize("call", ["advance", "outgoing", "tick", "receive", "write"])
def test_an_error_of_aioquic_ends_one_connection(
    quic: SocketGateway, trusted: Trust, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever the server has sent: the connection is lost, the client knows why, and it connects again."""

    async def scenario() -> None:
        client = trusted.client("errors", quic.quic_port)
        async with StayConnected(client, FullJitter(0.01, 0.02)):
            await client.wait_connected()
            link: Any = client._driver._link  # type: ignore[union-attr]

            def fails(*_: object) -> None:
                raise AssertionError("a frame that nobody expects")

            monkeypatch.setattr(link._stream, call, fails)
            ended = asyncio.ensure_future(client.wait_closed())
            if call == "tick":
                link._tick()
            else:
                client.publish("t", b"x", 1).cancel()
            assert "a frame that nobody expects" in (await ended).detail
            await until(lambda: client.connections == 2 and client.is_connected)
            await client.publish("t", b"y", 1)
            await client.disconnect()

    run(scenario())


def test_a_network_that_changes_all_the_time(quic: SocketGateway, trusted: Trust) -> None:
    """Exactly once at QoS 2, whatever socket a packet leaves from and however the NAT changes meanwhile."""

    async def scenario() -> None:
        nat, got = await Nat(quic.quic_port).open(), []
        client = trusted.client("restless", nat.port, on_message=got.append)
        await client.connect()
        await client.subscribe("restless", qos=2)
        waiting = []
        for number in range(60):
            waiting.append(client.publish("restless", b"%d" % number, 2))
            if number % 6 == 0:
                await nat.rebind()
            if number % 10 == 0:
                await client.network_changed()
        await asyncio.gather(*waiting)
        await until(lambda: len(got) >= 60)
        assert payloads(got) == [b"%d" % number for number in range(60)]
        assert client.connections == 1
        await client.disconnect()
        nat.close()

    run(scenario())
