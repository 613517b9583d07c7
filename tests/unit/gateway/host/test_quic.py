"""MQTT over QUIC before a real socket: clients that move, and what one may do to itself but to nobody else (G11)."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicErrorCode
from aioquic.tls import AlertDescription

from edge.errors import Unreachable
from edge.reconnect import FullJitter, StayConnected
from mqtt.codes import ReasonCode
from mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Subscription
from mqtt.quic_stream import crypto_error
from tests.unit.gateway.host.quic_client import Nat, RawQuic, Trust, payloads, raw, run, trust, until
from tests.unit.gateway.host.socket_gateway import HOST, PACKET_BYTES, SocketGateway

HANDSHAKES = 3
WINDOW = 65_536


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return trust(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def quic(tmp_path_factory: pytest.TempPathFactory, trusted: Trust) -> Iterator[SocketGateway]:
    limits = {"packet_bytes": PACKET_BYTES, "quic_window_bytes": WINDOW, "write_buffer_bytes": 10_000}
    with SocketGateway(tmp_path_factory.mktemp("quic"), limits=limits, tls=trusted.settings) as gateway:
        yield gateway


@pytest.fixture
def impatient(tmp_path: Path, trusted: Trust) -> Iterator[SocketGateway]:
    limits = {"quic_handshakes": HANDSHAKES, "connect_timeout_s": 0.5}
    with SocketGateway(tmp_path, limits=limits, tls=trusted.settings | {"handshake_timeout_s": 1.0}) as gateway:
        yield gateway


def test_a_session_knows_how_its_client_came(quic: SocketGateway, trusted: Trust) -> None:
    async def scenario() -> None:
        client = trusted.client("who", quic.quic_port)
        await client.connect()
        await until(lambda: quic.harness.presence("who"))
        connected = quic.harness.presence("who")[0]
        assert connected.protocol == "mqtt5+quic"
        assert connected.peer.startswith(f"{HOST}:")
        await client.disconnect()

    run(scenario())


@pytest.mark.parametrize("is_nat", [True, False])
def test_a_client_that_changes_its_address_stays_connected(quic: SocketGateway, trusted: Trust, is_nat: bool) -> None:
    """A NAT gives it another port, or it opens another socket itself. Either way its messages follow it."""

    async def scenario() -> None:
        nat, got = await Nat(quic.quic_port).open(), []
        client = trusted.client(f"moves-{is_nat}", nat.port if is_nat else quic.quic_port, on_message=got.append)
        await client.connect()
        await client.subscribe(f"moves/{is_nat}", qos=2)
        before, opened = quic.count("quic_address_changes"), quic.count("connections_opened")
        for number in range(1, 6):
            await (nat.rebind() if is_nat else client.network_changed())
            await client.publish(f"moves/{is_nat}", b"%d" % number, 2)
            assert quic.count("quic_address_changes") == before + number
        await until(lambda: len(got) == 5)
        assert payloads(got) == [b"1", b"2", b"3", b"4", b"5"]
        assert quic.count("connections_opened") == opened
        await client.disconnect()
        nat.close()

    run(scenario())


def test_random_datagrams_are_dropped(quic: SocketGateway, trusted: Trust) -> None:
    """Also those that begin like a client's first packet. Who is connected does not notice."""

    async def scenario() -> None:
        client = trusted.client("calm", quic.quic_port)
        await client.connect()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.connect((HOST, quic.quic_port))
            for number in range(500):
                start = (b"", b"\xc3\x00\x00\x00\x01\x08", b"\xc0\x6b\x33\x43\xcf", b"\x43", b"\x80\x00\x00\x00\x00")
                udp.send((start[number % 5] + os.urandom(1300))[: 1 + 7 * number % 1400])
        assert await client.publish("still", b"here", 1) is not None
        assert quic.call(lambda: quic.listeners.quic[0].handshakes) == 0
        await client.disconnect()

    run(scenario())


def test_another_version_of_quic_is_told_ours(quic: SocketGateway) -> None:
    """RFC 9000, 6; not for small datagrams, so that forged addresses gain nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5.0)
        udp.connect((HOST, quic.quic_port))
        packet = b"\xc0\xfa\xfa\xfa\xfa\x08" + bytes(8) + b"\x08" + bytes(8)
        udp.send(packet)
        udp.send(packet.ljust(1200, b"\0"))
        answer = udp.recv(2000)
        assert answer[1:5] == bytes(4)
        assert (1).to_bytes(4, "big") in answer
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(2000)


def test_half_handshakes_are_limited(impatient: SocketGateway, trusted: Trust) -> None:
    """A first packet costs nothing; who proves his address gets one of few places, and loses it after a time."""

    async def scenario() -> None:
        listener, begun = impatient.listeners.quic[0], 0
        while impatient.count("quic_refused") < 2:
            await _begin_handshake(impatient.quic_port)
            begun += 1
            assert listener.handshakes <= HANDSHAKES
        assert begun >= HANDSHAKES + 2
        await until(lambda: listener.handshakes == 0)
        assert impatient.count("quic_handshakes_failed") >= HANDSHAKES
        client = trusted.client("after", impatient.quic_port)
        async with StayConnected(client, FullJitter(0.01, 0.05)):
            await client.wait_connected()
            await client.disconnect()

    run(scenario())


async def _begin_handshake(port: int) -> None:
    """Answers the Retry packet, and says nothing more."""
    loop = asyncio.get_running_loop()
    quic = QuicConnection(configuration=QuicConfiguration(alpn_protocols=["mqtt"], server_name="localhost"))
    quic.connect((HOST, port), loop.time())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.connect((HOST, port))
        for _ in range(2):
            for datagram, _address in quic.datagrams_to_send(loop.time()):
                udp.send(datagram)
            quic.receive_datagram(await loop.sock_recv(udp, 2000), (HOST, port), loop.time())


@pytest.mark.parametrize("protocols", [["h3"], None])
def test_another_protocol_than_mqtt_is_refused(
    quic: SocketGateway, trusted: Trust, protocols: list[str] | None
) -> None:
    async def scenario() -> None:
        failed, opened = quic.count("quic_handshakes_failed"), quic.count("connections_opened")
        with suppress(ConnectionError):  # before or after the client believes that the handshake is done
            async with raw(trusted, quic.quic_port, alpn_protocols=protocols) as client:
                assert await client.code() == crypto_error(AlertDescription.no_application_protocol)
        await until(lambda: quic.count("quic_handshakes_failed") == failed + 1)
        assert quic.count("connections_opened") == opened

    run(scenario())


def _second_stream(client: RawQuic) -> None:
    client._quic._remote_max_streams_bidi = 10
    client.send_bytes(b"x", 4)


def _datagram(client: RawQuic) -> None:
    client._quic.send_datagram_frame(b"x")
    client.transmit()


def _reset(client: RawQuic) -> None:
    client._quic.reset_stream(0, 7)
    client.transmit()


@pytest.mark.parametrize(
    ("misbehave", "code"),
    [
        (_second_stream, QuicErrorCode.STREAM_LIMIT_ERROR),
        (_datagram, QuicErrorCode.PROTOCOL_VIOLATION),
        (_reset, QuicErrorCode.APPLICATION_ERROR),
    ],
)
def test_who_breaks_the_rules_of_quic_is_disconnected_alone(
    quic: SocketGateway, trusted: Trust, misbehave: Callable[[RawQuic], None], code: int
) -> None:
    """What it published before is stored; others stay connected."""

    async def scenario() -> None:
        got: list[Publish] = []
        other = trusted.client(f"other-{code}", quic.quic_port, on_message=got.append)
        await other.connect()
        await other.subscribe(f"rules/{code}")
        lost = quic.count("closed_connection_lost")
        async with raw(trusted, quic.quic_port) as client:
            await client.mqtt(f"rude-{code}")
            client.send(Publish(f"rules/{code}", b"before", 0))
            misbehave(client)
            assert await client.code() == code
        await until(lambda: got)
        await until(lambda: quic.count("closed_connection_lost") == lost + 1)
        await other.publish(f"rules/{code}", b"after", 1)
        await until(lambda: len(got) == 2)
        assert payloads(got) == [b"before", b"after"]
        await other.disconnect()

    run(scenario())


def test_a_packet_that_is_too_large(quic: SocketGateway, trusted: Trust) -> None:
    """DISCONNECT 0x95 arrives, and the end of the stream after it."""

    async def scenario() -> None:
        async with raw(trusted, quic.quic_port) as client:
            await client.mqtt("large")
            client.send(Publish("t", bytes(PACKET_BYTES * 3), 0))
            disconnect = await client.take()
            assert isinstance(disconnect, Disconnect)
            assert disconnect.reason_code is ReasonCode.PACKET_TOO_LARGE
            await until(lambda: client.has_eof)

    run(scenario())


@pytest.mark.parametrize("says", [b"", b"\x10"])
def test_a_client_without_connect_is_disconnected(impatient: SocketGateway, trusted: Trust, says: bytes) -> None:
    async def scenario() -> None:
        async with raw(trusted, impatient.quic_port) as client:
            if says:
                client.send_bytes(says)
            assert await client.code() == QuicErrorCode.NO_ERROR
        assert impatient.count("closed_connect_timeout") == 1

    run(scenario())


def test_a_client_that_does_not_read_is_limited(quic: SocketGateway, trusted: Trust) -> None:
    """Deliveries to it wait in its session, and others do not wait for it."""

    async def scenario() -> None:
        # A window that is never opened again, as that of a client that does not read.
        async with raw(trusted, quic.quic_port, max_stream_data=20_000, max_data=20_000) as slow:
            slow._quic._write_stream_limits = lambda **_: None  # type: ignore[method-assign]
            slow._quic._write_connection_limits = lambda **_: None  # type: ignore[method-assign]
            await slow.mqtt("slow")
            slow.send(Subscribe(1, [Subscription("pile", 1)]))
            assert isinstance(await slow.take(), Suback)
            quick = trusted.client("quick", quic.quic_port)
            await quick.connect()
            for number in range(100):
                await quick.publish("pile", b"%02d" % number + bytes(2000), 1)
            session = quic.harness.home.session("slow")
            assert session is not None
            await until(lambda: session.queued > 0)
            held = quic.call(lambda: [t._stream.buffered for t in quic.server.transports])  # type: ignore[attr-defined]
            assert max(held) <= 20_000
            await quick.disconnect()

    run(scenario())


def test_connections_are_limited(tmp_path: Path) -> None:
    async def scenario(gateway: SocketGateway, trusted: Trust) -> None:
        first = trusted.client("first", gateway.quic_port)
        await first.connect()
        async with raw(trusted, gateway.quic_port) as client:
            client.send(Connect("second"))
            connack = await client.take()
            assert isinstance(connack, Connack)
            assert connack.reason_code is ReasonCode.QUOTA_EXCEEDED
        await first.disconnect()

    trusted = trust(tmp_path)
    with SocketGateway(tmp_path, limits={"connections": 1}, tls=trusted.settings) as gateway:
        run(scenario(gateway, trusted))


def test_a_gateway_that_stops_says_so_and_takes_nobody(tmp_path: Path) -> None:
    """What was accepted is answered; DISCONNECT 0x8B is the last that a client reads."""

    async def scenario(gateway: SocketGateway, trusted: Trust) -> None:
        async with raw(trusted, gateway.quic_port) as client:
            await client.mqtt("stays")
            client.send(Publish("t", b"x", 1, packet_id=1))
            assert isinstance(await client.take(), Puback)
            gateway.begin_to_stop()
            disconnect = await client.take()
            assert isinstance(disconnect, Disconnect)
            assert disconnect.reason_code is ReasonCode.SERVER_SHUTTING_DOWN
            await until(lambda: client.has_eof)

    trusted = trust(tmp_path)
    with SocketGateway(tmp_path, tls=trusted.settings) as gateway:
        run(scenario(gateway, trusted))
        gateway.stop()
        assert gateway.left_open == 0


def test_more_connections_than_open_files_would_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over TCP, where they would be closed on arrival; here the client is told."""
    monkeypatch.setattr("schemas.settings.RESERVED_FILES", 1)

    async def scenario(gateway: SocketGateway, trusted: Trust) -> None:
        async with raw(trusted, gateway.quic_port), raw(trusted, gateway.quic_port):
            with pytest.raises(Unreachable, match="QUIC handshake failed"):
                await trusted.client("third", gateway.quic_port).connect()
        assert gateway.count("quic_refused") == 1

    trusted = trust(tmp_path)
    with SocketGateway(tmp_path, limits={"connections": 1}, tls=trusted.settings) as gateway:
        run(scenario(gateway, trusted))


def test_what_a_client_has_sent_is_stored_though_it_has_gone(tmp_path: Path) -> None:
    """It sends more than is read at once, and closes as soon as the gateway has received it."""

    async def scenario(gateway: SocketGateway, trusted: Trust) -> None:
        async with raw(trusted, gateway.quic_port) as client:
            await client.mqtt("hasty")
            client.send(*(Publish("t", b"hasty-%d" % number, 1, packet_id=number + 1) for number in range(300)))
            await until(lambda: not client._quic._streams[0].sender._buffer)
        await until(lambda: gateway.count("published") == 300)
        await until(lambda: gateway.count("closed_connection_lost") == 1)

    trusted = trust(tmp_path)
    with SocketGateway(tmp_path, limits={"client_in_flight_messages": 3}, tls=trusted.settings) as gateway:
        run(scenario(gateway, trusted))


def test_an_error_of_the_library_ends_one_connection(
    quic: SocketGateway, trusted: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        other = trusted.client("unharmed", quic.quic_port)
        await other.connect()
        failures, before = quic.count("quic_failures"), quic.call(lambda: set(quic.server.transports))
        async with raw(trusted, quic.quic_port) as client:
            await client.mqtt("victim")
            (victim,) = quic.call(lambda: quic.server.transports - before)
            monkeypatch.setattr(victim._stream, "receive", lambda *_: 1 // 0)  # type: ignore[attr-defined]
            client.send(Publish("t", b"x", 0))
            await until(lambda: quic.count("quic_failures") == failures + 1)
            await until(lambda: victim not in quic.server.transports)
        await other.publish("t", b"x", 1)
        await other.disconnect()

    run(scenario())


def test_a_client_that_stops_reading_as_its_connection_ends_harms_nobody(quic: SocketGateway, trusted: Trust) -> None:
    """RFC 9000, 3.5: its STOP_SENDING is read in the same turn in which the gateway wants to tell it something."""

    async def scenario() -> None:
        async with raw(trusted, quic.quic_port) as client:
            await client.mqtt("taken")
            client._quic.stop_stream(0, 0)
            datagrams = client._quic.datagrams_to_send(asyncio.get_running_loop().time())
            address = HOST, client._transport.get_extra_info("sockname")[1]

            def both() -> None:
                session = quic.harness.home.session("taken")
                assert session is not None
                assert session.link is not None
                for data, _ in datagrams:
                    quic.listeners.quic[0].datagram_received(data, address)
                session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)

            quic.call(both)

            def is_gone() -> bool:
                session = quic.harness.home.session("taken")
                return session is None or session.link is None

            await until(lambda: quic.call(is_gone))

    run(scenario())
