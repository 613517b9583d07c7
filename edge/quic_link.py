"""MQTT over QUIC, as a client (G11; RFC 9000): one stream on one connection, over a UDP socket that may be replaced.

Theory of operation. As in the gateway, what arrives or is written in one turn of the loop is handled together at its
end. The socket is connected to the server, so that the system reports a server that does not listen. The connection
does not depend on the socket: :meth:`QuicLink.move` opens another one, from whatever address the system chooses now,
and the server sees the same connection from there (RFC 9000, 9). The link does so by itself when the system refuses to
send because the socket's address or route is gone, at most once in `_MOVE_INTERVAL_S`.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from aioquic.quic.configuration import QuicConfiguration

from edge.errors import Unreachable
from edge.link import Address, Link, QuicTls, Receiver, text_of
from edge.quic_settings import quic_settings
from edge.tcp_progress import Progress
from mqtt.quic_stream import QuicStream

_HIGH_BYTES: Final = 1 << 18  # unacknowledged bytes above which writing pauses, and below which it resumes
_LOW_BYTES: Final = 1 << 16
_MOVE_INTERVAL_S: Final = 1.0
_READ_BYTES: Final = 1 << 16
_REFUSED: Final = frozenset({errno.ECONNREFUSED})

# What aioquic warns of is in our errors as well. Who wants its log adds a handler.
logging.getLogger("quic").addHandler(logging.NullHandler())


class QuicLink(Link):
    """One connection. Made by :func:`open_quic_link`."""

    def __init__(self, receiver: Receiver, settings: QuicConfiguration, remote: tuple[Any, ...]) -> None:
        super().__init__(receiver)
        self._loop = asyncio.get_running_loop()
        self._stream = QuicStream(settings)
        self._remote = remote
        self._peer: Any = None  # the server's address as datagrams from it have it
        self._udp: _Socket | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._moving: asyncio.Task[None] | None = None
        self._moved_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_turn_due = self._is_reading_paused = self._is_writing_paused = False
        self._is_closing = self._lingers = self._is_lost = False

    async def start(self) -> None:
        """Opens a socket and begins the handshake. Raises OSError."""
        self._udp = await _open_socket(self, self._remote)
        self._peer = self._udp.peer
        self._stream.connect(self._peer, self._loop.time())
        self._turn_soon()

    async def ready(self) -> None:
        await self._ready

    # -- Link ----------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if not self._survives(lambda: self._stream.write(data)):
            return
        self._turn_soon()
        if not self._is_writing_paused and self._stream.buffered > _HIGH_BYTES:
            self._is_writing_paused = True
            self._receiver.pause_writing()

    @property
    def unsent(self) -> int:
        return self._stream.buffered

    @property
    def progress(self) -> Progress:
        return Progress(self._stream.buffered, self.written - self._stream.buffered)

    def abort(self) -> None:
        if self._survives(self._stream.close):
            self._turn()

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._turn_soon()

    async def move(self) -> None:
        """Goes on over a new socket. Without a network it tries again until the connection ends."""
        if self._moving is None or self._moving.done():
            self._moving = self._loop.create_task(self._move(0.0))
        await asyncio.wait({self._moving})  # it is cancelled when the connection ends

    def _close(self, lingers: bool) -> None:
        self._is_closing, self._lingers = True, lingers
        self._stream.finish()
        self._is_reading_paused = False  # to see the peer close
        self._turn_soon()

    # -- called by the socket ------------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes) -> None:
        if self._survives(lambda: self._stream.receive(data, self._peer, self._loop.time())):
            self._turn_soon()

    def socket_failed(self, error: OSError) -> None:
        """The system could not send, or says that nobody receives."""
        if self._is_lost:
            return
        if error.errno in _REFUSED:
            if not self._stream.is_open:
                self._lose(error)
        elif self._stream.is_open and (self._moving is None or self._moving.done()):
            wait_s = max(0.0, self._moved_at + _MOVE_INTERVAL_S - self._loop.time())
            self._moving = self._loop.create_task(self._move(wait_s))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        stream = self._stream
        if not self._survives(stream.advance):
            return
        if stream.is_open and not self._ready.done():
            self._ready.set_result(None)
        self._read()
        if not self._survives(self._send):
            return
        if stream.end is not None and (stream.unread == 0 or self._is_closing):
            self._lose(None)
        elif self._is_writing_paused and stream.buffered <= _LOW_BYTES:
            self._is_writing_paused = False
            self._receiver.resume_writing()

    def _read(self) -> None:
        while self._stream.unread and not self._is_reading_paused and not self._is_lost:
            self._receiver.data_received(self._stream.read(_READ_BYTES))
        if self._stream.has_eof and not self._stream.unread:
            self.close()

    def _survives(self, call: Callable[[], None]) -> bool:
        """Whether the connection goes on after `call`. An error of aioquic, whatever the server sends, ends this
        connection only."""
        if not self._is_lost:
            try:
                call()
            except Exception as error:
                self._lose(error)
        return not self._is_lost

    def _send(self) -> None:
        stream = self._stream
        if self._is_closing and stream.is_delivered and (stream.has_eof or not self._lingers):
            stream.close()
        now, udp = self._loop.time(), self._udp
        if udp is None:
            return
        for datagram, _ in stream.outgoing(now):
            udp.send(datagram)
        deadline = stream.deadline()
        if deadline is not None and (self._timer is None or self._timer_at > deadline):  # an earlier one asks again
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._loop.call_at(deadline, self._tick), deadline

    def _tick(self) -> None:
        self._timer = None
        now = max(self._timer_at, self._loop.time())  # uvloop's time lags behind its timers
        if self._survives(lambda: self._stream.tick(now)):
            self._turn()

    async def _move(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        while (opened := await self._try_socket()) is None:
            await asyncio.sleep(_MOVE_INTERVAL_S)
        old, self._udp = self._udp, opened
        if old is not None:
            old.close()
        self._moved_at = self._loop.time()
        if self._survives(self._stream.move):
            self._turn()

    async def _try_socket(self) -> "_Socket | None":
        """None if there is no network at present."""
        try:
            return await _open_socket(self, self._remote)
        except OSError:
            return None

    def _lose(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._is_lost = True
        for timer in (self._timer, self._watchdog):
            if timer is not None:
                timer.cancel()
        if self._moving is not None:
            self._moving.cancel()
        if self._udp is not None:
            self._udp.close()
        end = self._stream.end
        if not self._ready.done():
            words = (end[1] or f"error {end[0]:#x}") if end is not None else "nobody listens there"
            if error is not None:
                words = text_of(error)
            self._ready.set_exception(Unreachable(f"the QUIC handshake failed: {words}"))
            self._ready.exception()  # retrieved: nobody may be waiting
        if not self.ended.done():
            self.ended.set_result(None)
        self._receiver.link_lost(error)


class _Socket(asyncio.DatagramProtocol):
    """One of the sockets of a link. What a replaced one still receives belongs to the connection too."""

    def __init__(self, link: QuicLink) -> None:
        self._link = link
        self._transport: asyncio.DatagramTransport
        self.peer: Any = None

    def send(self, datagram: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(datagram)

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # uvloop's transports are not subclasses
        self.peer = transport.get_extra_info("peername")

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._link.datagram_received(data)

    def error_received(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self._link.socket_failed(error)


async def open_quic_link(address: Address, tls: QuicTls, receiver: Receiver) -> QuicLink:
    """A link that is ready; tries each address of the host in turn. Raises Unreachable, OSError."""
    settings = quic_settings(address, tls)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
    problem: Exception | None = None
    for _, _, _, _, remote in found:
        link = QuicLink(receiver, settings, remote)
        try:
            await link.start()
            await link.ready()
            return link
        except (OSError, Unreachable) as error:
            problem = error
        except BaseException:
            link.abort()
            raise
        link.abort()
    raise Unreachable(f"{address} cannot be reached: {problem or 'the name has no address'}") from problem


async def _open_socket(link: QuicLink, remote: tuple[Any, ...]) -> _Socket:
    loop = asyncio.get_running_loop()
    _, opened = await loop.create_datagram_endpoint(lambda: _Socket(link), remote_addr=remote[:2])
    return opened
