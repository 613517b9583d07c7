"""How a client reaches its server, or says why it does not: TLS, WebSocket, servers that speak something else."""

import asyncio
import contextlib
import errno
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.typing import Subprotocol

from edge.errors import ConnectionLost, ConnectRefused, MqttClientError, Unreachable
from edge.link import Address, Link, QuicTls
from edge.mqtt_client import MqttClient
from edge.reconnect import FullJitter, StayConnected, is_final
from harness.keys import Authority
from mqtt.client_events import Closed, EndedBy
from mqtt.client_limits import PACKET_SIZE_MAX, ClientLimits
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.packets import Connect

HOST = "127.0.0.1"
SOON = ClientLimits(connect_timeout_s=0.3)


@asynccontextmanager
async def server(answer: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Says `answer` to whatever comes first; None: nothing, for ever; b"": closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is not None:
            writer.write(answer)
            if not answer:
                writer.close()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, HOST, 0, ssl=tls) as listening:
        yield listening.sockets[0].getsockname()[1]


def fails(answer: bytes | None, path: str | None = None, version: int = 5) -> MqttClientError:
    """How connecting to such a server fails."""

    async def run() -> MqttClientError:
        async with server(answer) as port:
            client = MqttClient(Address(HOST, port, websocket_path=path), Connect("c", version), limits=SOON)
            with pytest.raises(MqttClientError) as raised:
                await client.connect()
            assert not client.is_connected
            return raised.value

    return asyncio.run(asyncio.wait_for(run(), 10))


def test_a_server_that_does_not_answer() -> None:
    error = fails(None)
    assert isinstance(error, ConnectionLost)
    assert error.closed.by is EndedBy.TIMEOUT


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20\x03\x00\x00", b"220 mail ESMTP\r\n"])
def test_a_server_that_speaks_something_else(answer: bytes) -> None:
    error = fails(answer)
    assert isinstance(error, ConnectionLost)
    assert error.closed.by in (EndedBy.FAULT, EndedBy.TIMEOUT)


def test_a_server_that_closes() -> None:
    error = fails(b"")
    assert isinstance(error, ConnectionLost)
    assert error.closed.by is EndedBy.TRANSPORT


def test_a_server_that_closes_during_the_handshake() -> None:
    """The reason is never empty."""

    async def run() -> None:
        async with server(b"") as port:
            client = MqttClient(Address(HOST, port, ssl.create_default_context()), Connect("c", 5), limits=SOON)
            with pytest.raises(Unreachable, match="it closed the connection"):
                await client.connect()

    asyncio.run(asyncio.wait_for(run(), 10))


def test_the_end_of_a_connection_that_the_server_has_just_reset() -> None:
    """Closing raises no error, though the socket is gone, and the loop has not noticed it yet."""

    class Reset(asyncio.Transport):
        is_aborted = False

        def is_closing(self) -> bool:
            return False

        def can_write_eof(self) -> bool:
            return True

        def write_eof(self) -> None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

        def abort(self) -> None:
            self.is_aborted = True

    async def run() -> None:
        link, transport = Link(MagicMock()), Reset()
        link.connection_made(transport)
        link.close(lingers=True)
        assert transport.is_aborted
        link.connection_lost(None)

    asyncio.run(run())


def test_a_server_reads_everything_that_was_sent_before_the_end() -> None:
    """Although it reads late, and its own packets meet a client that has said goodbye."""

    async def run() -> bytes:
        goes_on, received = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"\x20\x03\x00\x00\x00")
            await goes_on.wait()
            writer.write(b"\x30\x05\x00\x01t\x00x" * 1000)
            await writer.drain()
            received.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(serve, HOST, 0, limit=16) as listening:
            client = MqttClient(Address(HOST, listening.sockets[0].getsockname()[1]), Connect("c", 5))
            await client.connect()
            client.publish("last", b"words" * 400_000)
            goodbye = asyncio.create_task(client.disconnect())
            await asyncio.sleep(0)
            goes_on.set()
            await goodbye
            return bytes(await received)

    assert asyncio.run(asyncio.wait_for(run(), 10)).endswith(b"words\xe0\x00")


@pytest.mark.parametrize(
    "address",
    [
        Address("a..b", 1),
        Address("a" * 64, 1, websocket_path="/mqtt"),
        Address("a:b", 1, websocket_path="/mqtt"),
        Address("a..b", 1, quic=QuicTls()),
    ],
)
def test_a_name_that_no_host_can_have(address: Address) -> None:
    """An access point or a gateway may have said it: the next one is tried."""
    with pytest.raises(Unreachable, match="cannot be reached"):
        asyncio.run(MqttClient(address, Connect("c")).connect())


def test_a_server_of_3_1_1_only() -> None:
    error = fails(b"\x20\x02\x00\x01")
    assert isinstance(error, ConnectRefused)
    assert error.reason is ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"\x20\x02\x00\x00\r\n\r\n", b"", None]
)
def test_a_server_without_websocket(answer: bytes | None) -> None:
    error = fails(answer, "/mqtt")
    assert isinstance(error, Unreachable)
    assert answer is None or "WebSocket" in str(error)


@pytest.mark.parametrize(("size", "packet_bytes"), [(1 << 40, PACKET_SIZE_MAX), (17 << 20, 1 << 19)])
def test_a_frame_that_no_memory_could_hold(size: int, packet_bytes: int) -> None:
    """A hostile server announces it: the connection ends before the first of its bytes is kept."""
    limits = ClientLimits(max_packet_size=packet_bytes)

    async def serve(socket: ServerConnection) -> None:
        await socket.recv()
        socket.transport.write(b"\x82\x7f" + size.to_bytes(8))
        await socket.wait_closed()

    async def run() -> None:
        async with serve_websocket(serve, HOST, 0, subprotocols=[Subprotocol("mqtt")]) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            client = MqttClient(Address(HOST, port, websocket_path="/mqtt"), Connect("c"), limits=limits)
            with pytest.raises(ConnectionLost) as lost:
                await client.connect()
            assert lost.value.closed.by is EndedBy.TRANSPORT

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("path", [None, "/mqtt"])
def test_a_caller_that_no_longer_waits_leaves_no_connection(path: str | None) -> None:
    """Such as one with a timeout of its own, while the server says nothing."""

    async def run() -> None:
        came, gone = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            came.set()
            with contextlib.suppress(OSError):
                await reader.read()
            gone.set()
            writer.close()

        async with await asyncio.start_server(serve, HOST, 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            client = MqttClient(Address(HOST, port, websocket_path=path), Connect("c"))
            connecting = asyncio.create_task(client.connect())
            await came.wait()
            connecting.cancel()
            await asyncio.wait([connecting])
            await gone.wait()

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize("trusted", [True, False])
def test_tls_and_whom_it_trusts(tmp_path: Path, trusted: bool) -> None:
    """With the right authority MQTT is spoken; with another one nothing is said."""
    authority = Authority(tmp_path, "right")
    signed = authority.sign("server")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(signed.certificate, signed.key)
    trusts = authority if trusted else Authority(tmp_path, "wrong")
    ours = ssl.create_default_context(cafile=str(trusts.file))

    async def run() -> None:
        async with server(b"\x20\x02\x00\x00", theirs) as port:
            client = MqttClient(Address(HOST, port, ours), Connect("c", 4))
            if trusted:
                await client.connect()
                await client.disconnect()
            else:
                with pytest.raises(Unreachable, match="certificate"):
                    await client.connect()

    asyncio.run(asyncio.wait_for(run(), 10))


def test_backoff_is_full_jitter() -> None:
    draws = iter([0.0, 0.5, 1.0, 1.0, 1.0])
    backoff = FullJitter(1.0, 8.0, lambda: next(draws))
    assert [backoff.delay_s(attempt) for attempt in (0, 1, 2, 3, 400)] == [0.0, 1.0, 4.0, 8.0, 8.0]


@given(st.integers(0, 10_000))
def test_backoff_is_bounded(attempt: int) -> None:
    assert 0 <= FullJitter(0.5, 60.0).delay_s(attempt) <= 60


@pytest.mark.parametrize(
    ("reason", "by", "final"),
    [
        (ReasonCode.NOT_AUTHORIZED, EndedBy.REFUSED, True),
        (ReasonCode.SERVER_BUSY, EndedBy.REFUSED, False),
        (ReasonCode.SERVER_UNAVAILABLE, EndedBy.REFUSED, False),
        (ConnectReturnCode.IDENTIFIER_REJECTED, EndedBy.REFUSED, True),
        (ConnectReturnCode.SERVER_UNAVAILABLE, EndedBy.REFUSED, False),
        (ReasonCode.SESSION_TAKEN_OVER, EndedBy.SERVER, True),
        (ReasonCode.ADMINISTRATIVE_ACTION, EndedBy.SERVER, False),
    ],
)
def test_when_to_give_up(reason: ReasonCode, by: EndedBy, final: bool) -> None:
    kind: Callable[[Closed], Exception] = ConnectRefused if by is EndedBy.REFUSED else ConnectionLost
    assert is_final(kind(Closed(reason, "", by))) is final


def test_it_connects_once_the_server_is_there() -> None:
    """Refused connections, then a server: whoever waits does not notice."""

    async def run() -> None:
        async with server(b"\x20\x03\x00\x00\x00") as port:
            pass
        client = MqttClient(Address(HOST, port), Connect("c"))
        async with StayConnected(client, FullJitter(0.01, 0.02)):
            waiting = asyncio.create_task(client.wait_connected())
            await asyncio.sleep(0.1)
            assert not waiting.done()

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read(1)
                writer.write(b"\x20\x03\x00\x00\x00")
                await reader.read()
                writer.close()

            async with await asyncio.start_server(serve, HOST, port):
                await waiting
                assert client.is_connected
                await client.disconnect()

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("turns", range(6))
def test_who_disconnects_while_it_connects_stays_away(is_there: bool, turns: int) -> None:
    """Whatever the attempt is at: resolving, connecting, waiting for CONNACK or for the next attempt."""

    async def run() -> None:
        async with server(b"\x20\x03\x00\x00\x00") as port:
            address = Address(HOST, port) if is_there else Address(HOST, 1)
            client = MqttClient(address, Connect("c"))
            async with StayConnected(client, FullJitter(0.01, 0.02)):
                for _ in range(turns):
                    await asyncio.sleep(0)
                await client.disconnect()
                await asyncio.sleep(0.1)
                assert not client.is_connected
                with pytest.raises(ConnectionLost):
                    await client.wait_connected()

    asyncio.run(asyncio.wait_for(run(), 10))
