"""The gateways of this machine, by name: found when somebody asks for them, and lost when their channel ends (R1)."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from gateway.dispatch.arrival import Arrival
from gateway.dispatch.frames import gateway_name
from gateway.dispatch.process import Process
from gateway.errors import SocketsError
from gateway.sockets.directory import SocketDirectory

AGAIN_S: Final = 0.1
"""How soon a gateway that could not be reached is tried again."""

log = structlog.get_logger(__name__)


class Processes:
    """`on_taken` gets clients that a gateway has; `on_returned` those that one did not take, which is named in each."""

    def __init__(
        self,
        directory: SocketDirectory,
        on_taken: Callable[[Sequence[Arrival]], None],
        on_returned: Callable[[Sequence[Arrival]], None],
    ) -> None:
        self._directory, self._on_taken, self._on_returned = directory, on_taken, on_returned
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, Process] = {}
        self._met: set[str] = set()  # those that have ever been reached
        self._again_at: dict[str, float] = {}

    def __len__(self) -> int:
        """How many are reached."""
        return len(self._open)

    def reach(self, name: str) -> bool:
        """Whether the gateway is on this machine and takes clients."""
        if name in self._open:
            return True
        now = self._loop.time()
        if now < self._again_at.get(name, 0.0):
            return False
        try:
            connection = self._directory.connect(gateway_name(name))
        except SocketsError:
            self._again_at[name] = now + AGAIN_S
            return False
        self._open[name] = self._process(name, connection)
        self._met.add(name)
        log.info("a gateway takes clients", gateway=name)
        return True

    def is_lost(self, name: str) -> bool:
        """Whether it was on this machine, and is not to be reached now."""
        return name in self._met and not self.reach(name)

    def give(self, name: str, arrival: Arrival) -> None:
        """To one that is reached."""
        self._open[name].give(arrival)

    def close(self) -> None:
        """Ends all channels; who is not taken is returned."""
        for process in list(self._open.values()):
            process.close()

    def _process(self, name: str, connection: socket.socket) -> Process:
        return Process(connection, self._on_taken, partial(self._ended, name))

    def _ended(self, name: str, left: Sequence[Arrival]) -> None:
        del self._open[name]
        self._again_at[name] = self._loop.time() + AGAIN_S
        log.info("a gateway takes clients no more", gateway=name, returned=len(left))
        for arrival in left:
            arrival.tried.add(name)
        if left:
            self._on_returned(left)
