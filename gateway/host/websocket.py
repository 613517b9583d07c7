"""MQTT over WebSocket (MQTT 5.0, section 6): subprotocol `mqtt`, binary frames, packets across frames as they come."""

import asyncio
import contextlib

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from gateway.host.connection import ClientConnection
from gateway.host.server import HostServer

_UNSUPPORTED_DATA = 1003


class _WebSocketTransport:
    """The transport of one WebSocket connection: writes gather and go out as one frame."""

    bearer = "ws"
    certificate: str | None = None

    def __init__(self, socket: ServerConnection, high_mark: int) -> None:
        self._socket = socket
        self._high_mark = high_mark
        self._out = bytearray()
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._closing = False
        self.connection: ClientConnection | None = None
        address = socket.remote_address
        self.peer = f"{address[0]}:{address[1]}" if address else ""

    def write(self, data: bytes) -> None:
        self._out += data
        self._wake.set()
        if len(self._out) > self._high_mark and self.connection is not None:
            self.connection.writing_paused()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._may_read.set()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    async def read(self) -> None:
        """Gives what the client sends to the connection, until either ends."""
        assert self.connection is not None
        async for message in self._socket:
            if isinstance(message, str):
                await self._socket.close(_UNSUPPORTED_DATA, "MQTT needs binary frames")  # [MQTT-6.0.0-1]
                return
            self.connection.data_received(message)
            await self._may_read.wait()
            if self._closing:
                return

    async def send(self) -> None:
        """Sends what was written, until closed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._out:
                data = bytes(self._out)
                self._out.clear()
                await self._socket.send(data)
                if self.connection is not None and not self.connection.writable:
                    self.connection.writing_resumed()
            if self._closing:
                await self._socket.close()
                return


async def serve_websocket(server: HostServer, host: str, port: int) -> Server:
    """Listens for MQTT over WebSocket on any path."""

    async def handle(socket: ServerConnection) -> None:
        transport = _WebSocketTransport(socket, server.limits.write_buffer_bytes)
        transport.connection = ClientConnection(server, transport)
        sender = asyncio.create_task(transport.send())
        try:
            with contextlib.suppress(ConnectionClosed):
                await transport.read()
        finally:
            transport.connection.transport_lost()
            transport.close()
            with contextlib.suppress(ConnectionClosed):
                await sender

    return await serve(
        handle,
        host,
        port,
        subprotocols=[Subprotocol("mqtt")],
        compression=None,
        max_size=server.limits.packet_bytes,
        ping_interval=None,
    )
