"""From an accepted connection to a gateway that has it (R1): look at it, choose a gateway, give it the socket.

A connection that a gateway does not take goes to the next one that was not tried. Nobody reads from it meanwhile, so
none of this shows to the client but by the time that passes.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Sequence
from typing import Final

import structlog

from gateway.dispatch.arrival import Arrival
from gateway.dispatch.choice import Choice
from gateway.dispatch.looking import Looking
from gateway.dispatch.processes import Processes
from gateway.sockets.directory import SocketDirectory
from schemas.member_settings import DispatcherSettings

_AT_ONCE: Final = 64
"""Connections that are accepted before others get a turn."""

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S: Final = 0.1

log = structlog.get_logger(__name__)


class Dispatcher:
    """`counts`: `accepted`; in the end each of these is `taken`, has `left`, or was closed because `nobody` took it or
    too many waited (`full`). `returned`: how often a gateway did not take one. `is_proxied`: a proxy names the clients
    (`gateway.proxy_protocol`)."""

    def __init__(
        self,
        settings: DispatcherSettings,
        is_proxied: bool,
        directory: SocketDirectory,
        choice: Choice,
        counts: Counter[str],
    ) -> None:
        self._most, self._choice, self._counts = settings.connections, choice, counts
        self._looking = Looking(settings.connect_timeout_s, is_proxied, self._known, self._left)
        self.processes = Processes(directory, self._taken, self._returned)
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._all_gone: asyncio.Future[None] | None = None
        self._is_over = False
        self.open = 0
        """Connections that were accepted and that no gateway has yet."""

    @property
    def listening(self) -> Sequence[socket.socket]:
        """The sockets from which it accepts; none once it has stopped."""
        return self._listening

    def reaches_any(self) -> bool:
        """Whether a gateway of this machine takes clients."""
        return any([self.processes.reach(name) for name in self._choice.order(None, self.processes.is_lost)])

    def accept_from(self, listening: Sequence[socket.socket]) -> None:
        """Accepts connections from these sockets, which are now the dispatcher's to close."""
        for one in listening:
            one.setblocking(False)
            self._listening.append(one)
            self._loop.add_reader(one.fileno(), self._accept, one)

    def accept_no_more(self) -> None:
        """Closes this process's copies of the listening sockets."""
        listening, self._listening = self._listening, []
        for one in listening:
            self._loop.remove_reader(one.fileno())
            one.close()

    async def finish(self, timeout_s: float, *, at_once: bool) -> None:
        """Returns when all connections are with gateways, or after the time. `at_once`: without waiting any longer for
        who the clients are. Those that are left end."""
        if at_once:
            self._looking.end()
        self._all_gone = self._loop.create_future()
        if self.open:
            await asyncio.wait((self._all_gone,), timeout=timeout_s)
        self._is_over = True
        self._looking.end()
        self.processes.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._pause(listening, error)
                    return
                continue  # the client has gone again
            self._counts["accepted"] += 1
            if self.open >= self._most:
                self._counts["full"] += 1
                connection.close()
                continue
            self.open += 1
            connection.setblocking(False)
            self._looking.begin(connection)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """What cannot be accepted stays readable: look again a little later."""
        log.warning("cannot accept connections for now", reason=error.strerror)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(_PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _known(self, connection: socket.socket, client: str | None) -> None:
        self._give(Arrival(connection, client))

    def _give(self, arrival: Arrival) -> None:
        names = () if self._is_over else self._choice.order(arrival.client, self.processes.is_lost)
        for name in names:
            if name not in arrival.tried and self.processes.reach(name):
                self.processes.give(name, arrival)
                return
        self._counts["nobody"] += 1
        self._gone(arrival.connection)

    def _taken(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            self._counts["taken"] += 1
            self._gone(arrival.connection)

    def _returned(self, arrivals: Sequence[Arrival]) -> None:
        self._counts["returned"] += len(arrivals)
        for arrival in arrivals:
            self._give(arrival)

    def _left(self) -> None:
        self._counts["left"] += 1
        self._done()

    def _gone(self, connection: socket.socket) -> None:
        connection.close()
        self._done()

    def _done(self) -> None:
        self.open -= 1
        if not self.open and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)
