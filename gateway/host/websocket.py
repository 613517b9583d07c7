"""MQTT over WebSocket (MQTT 5.0, section 6; RFC 6455): subprotocol `mqtt`, binary frames.

Frames are not packets: one may hold several packets or part of one. Messages are read frame by frame, so that their
size is unlimited and costs no memory.
"""

import asyncio
import contextlib
import http
import re
import ssl
from functools import partial
from typing import Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Event
from websockets.typing import Origin, Subprotocol

from gateway.errors import ProxyHeaderError
from gateway.host.connection import ByteTaker, Refuse
from gateway.host.host_connection import HostConnection
from gateway.host.host_server import HostServer
from gateway.host.proxies import TrustedProxies
from gateway.host.tls import common_name
from mqtt.codes import ReasonCode
from schemas.access_settings import trusts_this_machine
from schemas.settings import GatewaySettings
from schemas.this_machine import OWN_ORIGINS

_NORMAL, _GOING_AWAY, _UNSUPPORTED_DATA = 1000, 1001, 1003
_CLOSE_TIMEOUT_S: Final = 5.0
_QUEUED_FRAMES: Final = 4
_READ_BYTES: Final = 65_536  # of a frame, before other connections get a turn
_UNREAD_PONGS_MAX: Final = 1000

# The MQTT reason code for a client that violates WebSocket, by close code (RFC 6455, 7.4.1).
_FAULTS: Final = {
    1002: ReasonCode.PROTOCOL_ERROR,
    1007: ReasonCode.PROTOCOL_ERROR,
    1009: ReasonCode.PACKET_TOO_LARGE,
}


class _Connection(ServerConnection):
    """Limits unread answers to pings: the library writes them at once, whether the client reads them or not."""

    _unread = 0

    def process_event(self, event: Event) -> None:
        if self.paused and isinstance(event, Frame) and event.opcode is Opcode.PING:
            self._unread += 1
            if self._unread > _UNREAD_PONGS_MAX:
                self.transport.abort()
        super().process_event(event)

    def resume_writing(self) -> None:
        self._unread = 0
        super().resume_writing()


class _WebSocketTransport:
    """The transport of one WebSocket connection; collected writes go out as one frame."""

    bearer = "ws"
    refuse: Refuse | None = None

    def __init__(self, socket: ServerConnection, server: HostServer, peer: str) -> None:
        self._socket = socket
        self._high_mark = server.limits.write_buffer_bytes
        self._out = bytearray()
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._closing = False
        self._close_code = _NORMAL
        self._watchdog: asyncio.TimerHandle | None = None
        self.peer = peer
        self.uses_tls = socket.transport.get_extra_info("sslcontext") is not None
        self.certificate = common_name(socket.transport.get_extra_info("peercert"))
        self.connection: ByteTaker = HostConnection(server, self)

    def hand_over(self, to: ByteTaker) -> None:
        self.connection = to

    def write(self, data: bytes) -> None:
        self._out += data
        self._wake.set()
        if len(self._out) > self._high_mark:
            self.connection.writing_paused()

    def close(self) -> None:
        """Closes once everything written is sent; aborts after `_CLOSE_TIMEOUT_S` if the client does not read it."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._may_read.set()
        loop = asyncio.get_running_loop()
        self._watchdog = loop.call_later(_CLOSE_TIMEOUT_S, self._socket.transport.abort)

    def pause_reading(self) -> None:
        if not self._closing:
            self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    async def carry(self) -> None:
        """Reads and sends until the connection ends."""
        sender = asyncio.create_task(self._send())
        try:
            await self._read()
        except ConnectionClosed as end:
            if end.sent is not None and not end.rcvd_then_sent and end.sent.code in _FAULTS:
                self.connection.disconnect(_FAULTS[end.sent.code])
        finally:
            self.connection.transport_lost()
            self.close()
            with contextlib.suppress(ConnectionClosed):
                await sender
            if self._watchdog is not None:
                self._watchdog.cancel()

    async def _read(self) -> None:
        """Passes what the client sends to the connection; finally raises ConnectionClosed."""
        while True:
            async for data in self._socket.recv_streaming():
                if isinstance(data, str):  # [MQTT-6.0.0-1]
                    self._close_code = _UNSUPPORTED_DATA
                    self.connection.disconnect(ReasonCode.PROTOCOL_ERROR)
                    data = b""
                for start in range(0, len(data), _READ_BYTES):
                    self.connection.data_received(data[start : start + _READ_BYTES])
                    await self._may_read.wait()

    async def _send(self) -> None:
        """Sends what was written, until closed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._out:
                data = bytes(self._out)
                self._out.clear()
                await self._socket.send(data)
                if not self.connection.writable:
                    self.connection.writing_resumed()
            if self._closing:
                is_stopping = self._close_code == _NORMAL and not self._socket.server.is_serving()
                await self._socket.close(_GOING_AWAY if is_stopping else self._close_code)
                return


async def serve_websocket(
    server: HostServer,
    settings: GatewaySettings,
    port: int,
    tls: ssl.SSLContext | None = None,
    tls_timeout_s: float | None = None,
) -> Server:
    """Listens for MQTT over WebSocket; with TLS if a context is given, and then each handshake may take
    `tls_timeout_s`. Other requests get an HTTP status and are counted."""
    proxies = TrustedProxies(settings.trusted_proxies)

    async def handle(socket: ServerConnection) -> None:
        await _WebSocketTransport(socket, server, _peer(proxies, socket)).carry()

    def answered(socket: ServerConnection, request: Request, response: Response) -> None:
        if response.status_code != http.HTTPStatus.SWITCHING_PROTOCOLS:
            server.counts["websocket_refused"] += 1

    return await serve(
        handle,
        settings.host,
        port,
        subprotocols=[Subprotocol("mqtt")],
        origins=_origins(settings),
        process_request=partial(_check_request, settings.websocket_path, proxies),
        process_response=answered,
        server_header=None,
        compression=None,
        open_timeout=settings.limits.connect_timeout_s,
        ping_interval=None,  # MQTT's keep alive replaces it
        close_timeout=_CLOSE_TIMEOUT_S,
        max_size=(None, settings.limits.websocket_frame_bytes),
        max_queue=_QUEUED_FRAMES,
        create_connection=_Connection,
        ssl=tls,
        ssl_handshake_timeout=tls_timeout_s,
    )


def _check_request(path: str, proxies: TrustedProxies, socket: ServerConnection, request: Request) -> Response | None:
    """Refuses a wrong path, and a proxy that does not name its client."""
    if path and request.path.partition("?")[0] != path:
        return socket.respond(http.HTTPStatus.NOT_FOUND, f"MQTT over WebSocket is at {path}\n")
    try:
        _peer(proxies, socket)
    except ProxyHeaderError as error:
        return socket.respond(http.HTTPStatus.BAD_REQUEST, f"{error}\n")
    return None


def _peer(proxies: TrustedProxies, socket: ServerConnection) -> str:
    address = socket.remote_address or ("", 0)
    headers = socket.request.headers if socket.request is not None else None
    return proxies.peer(address[0], address[1], headers.get_all("X-Forwarded-For") if headers is not None else [])


def _origins(settings: GatewaySettings) -> list[Origin | re.Pattern[str] | None] | None:
    """Allows all origins if none is configured; but while programs on this machine need no credentials, only those of
    this machine: any page could do what they may. Clients without an origin are no browsers: no page can misuse them.
    """
    if settings.websocket_origins:
        return [*map(Origin, settings.websocket_origins), None]
    return [OWN_ORIGINS, None] if trusts_this_machine(settings.host, settings.authentication) else None
