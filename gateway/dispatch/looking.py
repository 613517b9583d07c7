"""Looks at what clients send first, and takes nothing of it (R1).

The bytes stay readable, so the system is told how many must be there before it says so again (SO_RCVLOWAT): a CONNECT
that comes byte by byte costs a few looks, and one that never comes costs a timer. If the system says so with fewer, no
more will come, or it has no room for them: whoever gets the connection will see.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from gateway.dispatch.connect import FoundClient, NeedsBytes, look

_FIRST_LOOK: Final = 512
"""Most clients say who they are in fewer bytes."""

OnKnown = Callable[[socket.socket, str | None], None]


class Looking:
    """`on_known` gets each connection once, with the client's identifier; None if it cannot be known, or was not within
    `timeout_s`. `on_left` is called for each that has ended before. `is_proxied`: see :func:`connect.look`."""

    def __init__(self, timeout_s: float, is_proxied: bool, on_known: OnKnown, on_left: Callable[[], None]) -> None:
        self._timeout_s, self._is_proxied = timeout_s, is_proxied
        self._on_known, self._on_left = on_known, on_left
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, connection: socket.socket) -> None:
        """Often all is there already."""
        needed = self._look(connection, 0)
        if needed:
            self._waiting[connection] = self._loop.call_later(self._timeout_s, self._late, connection)
            self._wait(connection, needed)

    def end(self) -> None:
        """Who they are does not matter any more."""
        for connection in list(self._waiting):
            self._late(connection)

    def _wait(self, connection: socket.socket, needed: int) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, needed)
        self._loop.add_reader(connection.fileno(), self._readable, connection, needed)

    def _readable(self, connection: socket.socket, needed: int) -> None:
        more = self._look(connection, needed)
        if more:
            self._wait(connection, more)

    def _late(self, connection: socket.socket) -> None:
        self._forget(connection)
        self._on_known(connection, None)

    def _look(self, connection: socket.socket, needed: int) -> int:
        """How many bytes are needed to look again; 0 if that is over."""
        data = b""
        try:
            data = connection.recv(max(needed, _FIRST_LOOK), socket.MSG_PEEK)
            has_left = not data
        except BlockingIOError:
            has_left = False
        except OSError:
            has_left = True
        if has_left:
            self._forget(connection)
            connection.close()
            self._on_left()
            return 0
        found = look(data, self._is_proxied)
        if isinstance(found, NeedsBytes) and len(data) >= needed:
            return found.size
        self._forget(connection)
        self._on_known(connection, found.client if isinstance(found, FoundClient) else None)
        return 0

    def _forget(self, connection: socket.socket) -> None:
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self._loop.remove_reader(connection.fileno())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)  # also for whoever gets it
