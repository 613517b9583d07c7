"""A TCP port that leads to another one, or nowhere: how the demo cuts uplinks, and takes aircraft from place to place.

Before :meth:`Forwarder.open` nothing listens, so connections are refused. After it, one that leads nowhere is reset as
soon as it is accepted.
"""

import asyncio
import contextlib
import socket
import struct
from typing import Final

HOST: Final = "127.0.0.1"
CHUNK: Final = 65_536
CONNECT_S: Final = 5.0
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time

Target = tuple[str, int]


class Forwarder:
    """`port` is known at once. It leads nowhere until :meth:`lead_to`. `accepted`: how many connections were forwarded,
    `refused`: how many were not."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind((HOST, 0))
        self.port: int = self._socket.getsockname()[1]
        self.accepted = self.refused = 0
        self._target: Target | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def open(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def close(self) -> None:
        """Cuts everything, and frees the port."""
        self.cut()
        if self._server is not None:
            self._server.close()
        else:
            self._socket.close()
        if self._connections:
            await asyncio.wait(list(self._connections))

    def lead_to(self, host: str, port: int) -> None:
        """New connections lead there; those to another target are cut."""
        if self._target != (host, port):
            self.cut()
            self._target = (host, port)

    def cut(self) -> None:
        """Cuts all connections, and refuses new ones."""
        self._target = None
        for task, writers in self._connections.items():
            for writer in writers:
                _reset(writer)
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target, task = self._target, asyncio.current_task()
        if target is None or task is None:
            self.refused += 1
            _reset(writer)
            return
        writers = self._connections[task] = [writer]
        try:
            async with asyncio.timeout(CONNECT_S):
                there_reader, there_writer = await asyncio.open_connection(*target)
            writers.append(there_writer)
            self.accepted += 1
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, there_writer))
                tasks.create_task(_pump(there_reader, writer))
        except (OSError, TimeoutError, ExceptionGroup, asyncio.CancelledError):
            pass  # it has ended, or was cut: both ends notice
        finally:
            del self._connections[task]
            for one in writers:
                _reset(one)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one of the two ends; the end of what comes is passed on."""
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection at once, without the orderly end of TCP."""
    found = writer.get_extra_info("socket")
    if found is not None and found.fileno() >= 0:
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
