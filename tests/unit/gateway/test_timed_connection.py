"""Clients that read nothing of what is written to them lose their connection; those that read slowly keep it."""

import asyncio
import socket
import sys
import time
from array import array
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any

import pytest
from aiohttp import web

from gateway.timed_connection import TimedConnection, WriteDeadline
from tests.unit.gateway.shard.virtual_time import run


class Unread(asyncio.Transport):
    """A transport with `unsent` bytes that the client has not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 100
        self.socket: socket.socket | None = None
        self.is_aborted = self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += len(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def abort(self) -> None:
        self.is_aborted = True


def test_a_client_that_reads_has_time_again() -> None:
    """However slowly it reads: only a time in which it takes nothing ends the connection."""

    async def scenario() -> None:
        transport = Unread()
        deadline = WriteDeadline(transport, 10)
        deadline.begin()
        for _ in range(50):
            await asyncio.sleep(9)
            transport.unsent -= 1
            deadline.begin()
        assert not transport.is_aborted
        await asyncio.sleep(21)
        assert transport.is_aborted

    run(scenario())


def queued(sock: socket.socket) -> int:
    """Bytes that the system has taken and the other side's has not acknowledged."""
    count = array("i", [0])
    ioctl(sock.fileno(), TIOCOUTQ, count)
    return count[0]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is acknowledged")
def test_a_client_that_reads_what_the_system_has_has_time_again() -> None:
    """The system may have megabytes to send, and takes nothing more from the transport for minutes."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            client.connect(listener.getsockname())
            sock, _ = listener.accept()
            sock.setblocking(False)
            transport = Unread()
            transport.socket = sock
            sock.send(bytes(500_000))
            deadline = WriteDeadline(transport, 10)
            deadline.begin()
            for _ in range(5):
                await asyncio.sleep(9)
                before, patience = queued(sock), time.monotonic() + 20
                while queued(sock) == before:
                    client.recv(8_192)
                    assert time.monotonic() < patience
            assert not transport.is_aborted
            await asyncio.sleep(31)
            assert transport.is_aborted
            sock.close()

    run(scenario())


def test_nothing_ends_a_connection_whose_client_has_read() -> None:
    async def scenario() -> None:
        transport = Unread()
        deadline = WriteDeadline(transport, 10)
        deadline.begin()
        deadline.end()
        await asyncio.sleep(100)
        assert not transport.is_aborted

    run(scenario())


def test_a_close_that_never_ends_is_cut_short() -> None:
    """Also with nothing left to send: TLS may wait for the client's answer."""

    async def scenario() -> None:
        transport = Unread()
        transport.unsent = 0
        WriteDeadline(transport, 10).begin()
        await asyncio.sleep(11)
        assert transport.is_aborted

    run(scenario())


def test_a_client_that_does_not_read_the_last_answer_is_let_go() -> None:
    """It is less than the transport holds, so nobody waits for it; but the close does."""

    async def scenario() -> None:
        async def answer(_: web.BaseRequest) -> web.Response:
            return web.Response(text="hello")

        server, transport = web.Server(answer), Unread()
        connection = TimedConnection(server, 10)
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.0\r\n\r\n")
        await asyncio.sleep(9)
        assert (transport.is_closed, transport.is_aborted) == (True, False)
        await asyncio.sleep(2)
        assert transport.is_aborted
        connection.connection_lost(None)

    run(scenario())
