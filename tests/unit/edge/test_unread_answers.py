"""A server that asks for answers and does not read them: they have a limit, and own messages do not count (M2)."""

import asyncio
import contextlib
import socket
from collections import deque
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.typing import Subprotocol

from edge.client.limits import Limits
from edge.driver import Driver
from edge.link import Address, Link
from edge.mqtt_client import MqttClient
from edge.unread_answers import STEP_BYTES, UnreadAnswers
from mqtt.client_connection import ClientConnection
from mqtt.client_events import Closed, EndedBy, Event
from mqtt.client_limits import ClientLimits
from mqtt.client_session import ClientSession
from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet, Publish, Pubrec, Pubrel
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import client

HOST = "127.0.0.1"
LIMIT = 100_000
LIMITS = ClientLimits(unread_answer_bytes=LIMIT)
HIGH_WATER_BYTES = READ_BYTES = 1 << 16
WRITE_MOST = 100_000

# Own bytes, bytes of answers behind them, and how many bytes the server reads then.
WRITES = st.tuples(st.integers(0, 50_000), st.integers(0, 50_000), st.integers(0, 120_000))


@given(st.lists(WRITES, max_size=60))
def test_the_count_is_right_but_for_a_step_and_a_write(writes: list[tuple[int, int, int]]) -> None:
    counted, queue = UnreadAnswers(), deque[list[int]]()  # [bytes, of answers?]
    written = answered = 0
    for own, answers, reads in writes:
        queue += ([own, 0], [answers, 1])
        written, answered = written + own + answers, answered + answers
        waiting = sum(size for size, _ in queue)
        unread = sum(size for size, is_answer in queue if is_answer)
        count = counted.count(written, answered, waiting)
        assert abs(count - unread) <= STEP_BYTES + WRITE_MOST
        while reads and queue:
            taken = min(reads, queue[0][0])
            queue[0][0] -= taken
            reads -= taken
            if not queue[0][0]:
                queue.popleft()


def test_own_messages_do_not_count() -> None:
    counted, written = UnreadAnswers(), 0
    for _ in range(1_000):
        written += 100_000
        assert counted.count(written, 0, written) == 0


PROVOKING: dict[str, list[Packet]] = {
    "PUBLISH": [Publish("t", b"", 1, packet_id=number) for number in range(1, 50_000)],
    "PUBREL": [Pubrel(9)] * 10_000,
    "PUBREC": [Pubrec(9)] * 10_000,
}


class UnreadLink:
    """A link to a server that reads nothing."""

    def __init__(self, driver: Driver) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self.written = self.unsent = 0
        self.is_aborted = False
        self._driver = driver

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if self.unsent <= HIGH_WATER_BYTES < self.unsent + len(data):
            self._driver.pause_writing()
        self.unsent += len(data)

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("name", PROVOKING)
def test_a_server_that_reads_no_answers_loses_the_client(name: str, version: int) -> None:
    """The client keeps no more for it than its limit, the system's own and one read."""
    packets = b"".join(encode(packet, version) for packet in PROVOKING[name])

    async def run() -> None:
        events: list[Event] = []

        def handle(found: list[Event]) -> None:
            events.extend(found)
            for one in found:
                if isinstance(one, Publish):
                    connection.acknowledge(one)

        driver = Driver(handle)
        link = UnreadLink(driver)
        connection = ClientConnection(ClientSession(), Connect("c", version, True), LIMITS, 0.0)
        driver.begin(cast(Link, link), connection)
        driver.data_received(encode(Connack(), version))
        while not link.is_aborted:
            for position in range(0, len(packets), READ_BYTES):
                driver.data_received(packets[position : position + READ_BYTES])
            assert link.unsent < HIGH_WATER_BYTES + LIMIT + 4 * READ_BYTES
        closed = events[-1]
        assert isinstance(closed, Closed)
        assert (closed.by, closed.reason) == (EndedBy.FAULT, ReasonCode.QUOTA_EXCEEDED)
        assert "the server does not read" in closed.detail
        await asyncio.sleep(0)

    asyncio.run(run())


def test_the_client_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TCP; a server that does not read loses only its connection."""
    packets, made = encode(Pubrel(9), 5) * 50_000, Link.connection_made

    def with_a_small_buffer(link: Link, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        made(link, transport)

    monkeypatch.setattr(Link, "connection_made", with_a_small_buffer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        writer.write(encode(Connack(), 5))
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(packets)
                await writer.drain()

    async def run() -> None:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            listener.bind((HOST, 0))
            server = await asyncio.start_server(serve, sock=listener)
            url = f"mqtt://{HOST}:{listener.getsockname()[1]}"
            async with client(url, limits=Limits(unread_answer_bytes=LIMIT)) as van:
                await eventually(lambda: van._bearer.connections >= 2, "it has connected again")
            server.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_pings_of_websocket_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered below MQTT."""
    pings, made = (b"\x89\x7d" + bytes(125)) * 1_000, Link.connection_made

    def with_a_small_buffer(link: Link, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        made(link, transport)

    monkeypatch.setattr(Link, "connection_made", with_a_small_buffer)

    async def serve(connection: ServerConnection) -> None:
        await connection.recv()
        transport = connection.transport
        transport.pause_reading()
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await connection.send(encode(Connack(), 5))
        while not transport.is_closing():
            if transport.get_write_buffer_size() < len(pings):
                transport.write(pings)
            await asyncio.sleep(0)

    async def run() -> Closed:
        async with serve_websocket(serve, HOST, 0, subprotocols=[Subprotocol("mqtt")]) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            client = MqttClient(Address(HOST, port, websocket_path="/mqtt"), Connect("c", 5, True), limits=LIMITS)
            await client.connect()
            return await client.wait_closed()

    closed = asyncio.run(asyncio.wait_for(run(), 60))
    assert closed.by is EndedBy.TRANSPORT
    assert "the server does not read" in closed.detail
