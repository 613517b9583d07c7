"""Byte streams that carry MQTT: TCP, TLS, WebSocket (MQTT 5.0, section 6; RFC 6455), and QUIC (RFC 9000).

A link calls its :class:`Receiver` on the event loop: with bytes as they arrive, and at the end once `link_lost`.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final, Protocol, cast

from edge.errors import Unreachable
from edge.tcp_progress import Progress, progress
from mqtt.client_limits import ClientLimits

CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class QuicTls:
    """Certificates for QUIC, whose TLS is not that of :mod:`ssl`. The server's certificate is always verified, by the
    authorities in the PEM file `ca_file`, or by those of the system. `certificate` and `key`: the client's own, if the
    server asks for one; PEM files, the key not encrypted."""

    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Address:
    """Where a server listens. `tls`: use TLS; `server_hostname`: the name in its certificate if it differs from `host`;
    `websocket_path`: use WebSocket with this path, such as `/mqtt`; `quic`: use QUIC, and none of the others."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    websocket_path: str | None = None
    quic: QuicTls | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Receiver(Protocol):
    """The callbacks of a link."""

    def data_received(self, data: bytes) -> None: ...

    def link_lost(self, error: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class Link(asyncio.Protocol):
    """A byte stream over TCP or TLS. Read-only: `written`, bytes so far, those of its own framing included."""

    _transport: asyncio.Transport | None = None  # until connected, or if TLS fails

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._watchdog: asyncio.TimerHandle | None = None
        self.written = 0
        self.ended = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        """Returns once the link can carry MQTT; raises Unreachable if it cannot."""

    def write(self, data: bytes) -> None:
        """Sends bytes, now or as soon as the network accepts them."""
        if self._transport is not None:
            self.written += len(data)
            self._transport.write(data)

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the network has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def progress(self) -> Progress:
        """How far the peer has got with what was written."""
        if self._transport is None:
            return Progress(0, 0)
        return progress(self._transport, self.written)

    def close(self, lingers: bool = False) -> None:
        """Ends the link once everything written is sent; waits 5 s at most for a peer that does not read.

        If it `lingers`, it also waits until the peer has read everything and has closed. Closing the socket earlier
        would reset the connection if the peer sends something meanwhile, and lose what has not reached it yet
        (RFC 1122, 4.2.2.13): a QoS 0 message, or the DISCONNECT. And a client that connects again could overtake its
        own last packets.
        """
        if self._watchdog is None and not self.ended.done():
            self._watchdog = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self.abort)
            self._close(lingers)

    def abort(self) -> None:
        """Breaks the link at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    async def move(self) -> None:
        """Goes on over a new socket if the bearer can, after the network has changed; otherwise does nothing."""

    def _close(self, lingers: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if lingers and transport.can_write_eof():
            try:
                transport.write_eof()
            except OSError:  # the peer has reset the connection, and the loop is about to find out
                transport.abort()
                return
            transport.resume_reading()  # to see the peer close
        else:  # TLS waits for the peer in its closing handshake
            transport.close()

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        self._receiver.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        if not self.ended.done():
            self.ended.set_result(None)
        self._receiver.link_lost(error)

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()


def text_of(error: Exception) -> str:
    """What an error says: the system's words without their number; its type if it says nothing."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def open_link(address: Address, receiver: Receiver, limits: ClientLimits) -> Link:
    """Opens a link to `address`, ready for MQTT. Raises Unreachable, which says why it failed."""
    try:
        async with asyncio.timeout(limits.connect_timeout_s):
            if address.quic is not None:
                from edge.quic_link import open_quic_link  # imported here: users of TCP need not pay its memory

                return await open_quic_link(address, address.quic, receiver)
            return await _open(address, _make_link(address, receiver, limits))
    except TimeoutError as error:
        raise Unreachable(f"{address} did not answer within {limits.connect_timeout_s:g} s") from error
    except (OSError, ValueError) as error:  # SSLError is an OSError; ValueError: no host has such a name
        # asyncio gives no text if the server closes during the handshake of TLS.
        said = getattr(error, "strerror", None) or str(error)
        reason = said or f"it closed the connection ({type(error).__name__})"
        raise Unreachable(f"{address} cannot be reached: {reason}") from error


async def _open(address: Address, link: Link) -> Link:
    hostname = (address.server_hostname or address.host) if address.tls is not None else None
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: link, address.host, address.port, ssl=address.tls, server_hostname=hostname
        )
        await link.ready()
    except BaseException:
        link.abort()
        raise
    return link


def _make_link(address: Address, receiver: Receiver, limits: ClientLimits) -> Link:
    if address.websocket_path is None:
        return Link(receiver)
    from edge.websocket_link import WebSocketLink  # imported here: users of TCP need not pay its memory

    scheme = "ws" if address.tls is None else "wss"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return WebSocketLink(receiver, f"{scheme}://{host}:{address.port}{address.websocket_path}", limits)
