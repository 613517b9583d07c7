"""Accepts connections of peers, from which :mod:`edge.node.links` makes links."""

import asyncio
import logging
import socket
from typing import Final

from edge.client.errors import StoreError
from edge.node.errors import NodeError
from edge.node.links import Links

ACCEPT_ERROR_S: Final = 1.0
"""The pause after a connection could not be accepted: too many open files, for example."""

_log: Final = logging.getLogger("waystation.mesh")


class LinkServer:
    """Listens on `host` and `port` (0: any free one). Read-only: `port`, the real one."""

    def __init__(self, links: Links, host: str, port: int) -> None:
        self._links, self._host, self.port = links, host, port
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None

    async def open(self) -> None:
        """Raises NodeError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self._listener = socket.create_server(found[0][4][:2], family=found[0][0], backlog=64)
        except OSError as error:
            raise NodeError(f"mesh.host {self._host}, mesh.port {self.port} cannot be used: {error}") from error
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        assert self._listener is not None
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
            except OSError as error:
                _log.error("links cannot be accepted: %s", error)
                await asyncio.sleep(ACCEPT_ERROR_S)
                continue
            task = asyncio.create_task(self._serve(connection, f"{address[0]}:{address[1]}"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # the link is counted now

    async def close(self) -> None:
        """Ends all links that were accepted."""
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            await self._links.accept(connection, address)
        except (StoreError, NodeError) as error:
            _log.debug("link from %s: %s", address, error)  # the node reports it
        except Exception:
            _log.exception("the link from %s failed", address)
