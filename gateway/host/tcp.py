"""MQTT over TCP: a buffered protocol that reads all connections of a gateway through one shared buffer."""

import asyncio
from typing import cast

from gateway.host.connection import ByteTaker, Refuse
from gateway.host.host_server import HostServer
from gateway.host.movable_connection import MovableConnection
from gateway.host.tls import common_name

_LINGER_S = 2.0
"""How long a client may take to close its side."""


class MqttTcpProtocol(asyncio.BufferedProtocol):
    """The transport of one TCP connection."""

    bearer = "mqtt"
    refuse: Refuse | None = None
    uses_tls = False
    certificate: str | None = None

    def __init__(self, server: HostServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._connection: ByteTaker | None = None
        self._linger: asyncio.TimerHandle | None = None
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open(transport)
        self._connection = MovableConnection(self._server, self)

    def _open(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.transports.add(self)
        self._transport.set_write_buffer_limits(high=self._server.limits.write_buffer_bytes)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else ""
        self.uses_tls = transport.get_extra_info("sslcontext") is not None
        self.certificate = common_name(transport.get_extra_info("peercert"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._connection is not None:
            self._connection.data_received(self._server.read_buffer[:nbytes])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.transports.discard(self)
        if self._linger is not None:
            self._linger.cancel()
        if self._connection is not None:
            self._connection.transport_lost()

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.writing_paused()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.writing_resumed()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def hand_over(self, to: ByteTaker) -> None:
        self._connection = to

    # -- for connections that move (gateway.host.movable_connection) ---------------------------------------------------

    @property
    def is_plain(self) -> bool:
        transport = self._transport
        return (
            transport is not None
            and not transport.is_closing()
            and self._connection is not None
            and transport.get_extra_info("sslcontext") is None
        )

    @property
    def unwritten(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def fileno(self) -> int:
        if not self.is_plain or self._transport is None:
            raise OSError("the connection has ended")
        return int(self._transport.get_extra_info("socket").fileno())

    def release(self) -> None:
        self._connection = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Closes once everything written is sent and the client has closed its side or its time is over.

        Until then, what it sends is read and discarded. Otherwise the system would answer it with a reset, and the
        client would lose unread data, such as the DISCONNECT that gives the reason.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or self._connection is None:
            return
        self._connection = None
        if not transport.can_write_eof():  # TLS has its own closing sequence
            transport.close()
            return
        transport.write_eof()
        transport.resume_reading()
        self._linger = asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
