"""Clients that the dispatcher of the machine gives to this gateway (R1). They are then as if they had come to its own
listener.

The gateway confirms before anything reads from their sockets. If it cannot confirm, the dispatcher may have given them
to another process, which then reads them: so they are closed unread.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import structlog

from gateway.dispatch.frames import Frame, decode_frame, encode_frame, gateway_name
from gateway.errors import SocketsError
from gateway.host.host_server import HostServer
from gateway.host.listeners import tcp_protocol
from gateway.sockets.channel import Channel
from gateway.sockets.channels import Channels, close_sockets
from gateway.sockets.directory import SocketDirectory
from schemas.settings import GatewaySettings

log = structlog.get_logger(__name__)


class DispatchedClients:
    """Takes clients under the gateway's name until it is closed; `protocol` makes what reads from each of them. Raises
    SocketsError if the directory cannot be used."""

    def __init__(
        self, directory: Path, gateway: str, protocol: Callable[[], asyncio.BaseProtocol], counts: Counter[str]
    ) -> None:
        self._protocol, self._counts = protocol, counts
        self._loop = asyncio.get_running_loop()
        self._taking: set[asyncio.Task[None]] = set()
        self._directory = SocketDirectory(directory)
        try:
            self._channels = Channels(self._directory, gateway_name(gateway), self._came)
        except SocketsError:
            self._directory.close()
            raise

    def close(self) -> None:
        """Takes none any more: the dispatcher gives them to others, also those that were not confirmed."""
        self._channels.close()
        self._directory.close()

    def _came(self, channel: Channel, data: bytes, sockets: list[socket.socket]) -> None:
        try:
            frame = decode_frame(data)
            if frame.kind != "hand":
                raise SocketsError(f"a frame of the kind {frame.kind} is for others")
        except SocketsError as error:
            log.warning("the dispatcher sends what this version does not know", reason=str(error))
            self._channels.refuse(channel, sockets)
            return
        task = self._loop.create_task(self._take(channel, frame.number, sockets))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _take(self, channel: Channel, batch: int, sockets: list[socket.socket]) -> None:
        try:
            await channel.send(encode_frame(Frame("taken", batch)))
        except SocketsError:
            close_sockets(sockets)
            return
        self._counts["dispatched"] += len(sockets)
        begun = (self._loop.connect_accepted_socket(self._protocol, one) for one in sockets)
        results = await asyncio.gather(*begun, return_exceptions=True)
        for one, result in zip(sockets, results, strict=True):
            if isinstance(result, BaseException):  # the client has gone already
                one.close()


def open_dispatched(server: HostServer, settings: GatewaySettings) -> DispatchedClients | None:
    """None without `gateway.cluster.sockets`. Raises SocketsError."""
    directory = settings.cluster.sockets
    if not directory:
        return None
    return DispatchedClients(Path(directory), settings.name, tcp_protocol(server, settings), server.counts)
