"""The way to one gateway of this machine, by which clients are given to it (R1).

A client that was given is in one of three states:

| state  | who has it                                  | if the channel ends  |
|--------|---------------------------------------------|----------------------|
| queued | the dispatcher                              | it is returned       |
| sent   | the dispatcher; the gateway has a copy too  | it is returned       |
| taken  | the gateway, which has said so              | nothing: it has left |

A gateway confirms before it reads, and reads nothing if it cannot confirm. So as long as no confirmation has come, and
none can come any more, all that the client has sent is still to be read by whoever gets the socket next. A gateway that
does not confirm in time is given up in this order: first it becomes impossible for it to confirm, then what it has said
by then is read, and then the rest is returned.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.dispatch.arrival import Arrival
from gateway.dispatch.frames import Frame, decode_frame, encode_frame
from gateway.errors import SocketsError
from gateway.sockets.channel import FRAME_SOCKETS, Channel
from gateway.sockets.channels import close_sockets

CONFIRM_S: Final = 1.0
"""How long a gateway may take. It confirms at once, unless its process stands still."""


class _Batch(NamedTuple):
    arrivals: Sequence[Arrival]
    deadline: float


class Process:
    """`on_taken` gets those that the gateway has; `on_end` is called once, with those that are returned, also after
    :meth:`close`."""

    def __init__(
        self,
        connection: socket.socket,
        on_taken: Callable[[Sequence[Arrival]], None],
        on_end: Callable[[Sequence[Arrival]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_taken, self._on_end = on_taken, on_end
        self._channel = Channel(connection, self._answered, self._ended)
        self._queued: deque[Arrival] = deque()
        self._sent: dict[int, _Batch] = {}  # the oldest first
        self._last = 0
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def give(self, arrival: Arrival) -> None:
        """Those that are given while the channel is busy go together."""
        self._queued.append(arrival)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send())

    def close(self) -> None:
        """Gives it up, as if its time were over."""
        self._channel.abandon()

    async def _send(self) -> None:
        try:
            while self._queued and not self._is_over:
                arrivals = [self._queued.popleft() for _ in range(min(FRAME_SOCKETS, len(self._queued)))]
                self._last += 1
                self._sent[self._last] = _Batch(arrivals, self._loop.time() + CONFIRM_S)
                if self._timer is None:
                    self._timer = self._loop.call_later(CONFIRM_S, self._check)
                frame = encode_frame(Frame("hand", self._last))
                await self._channel.send(frame, [arrival.connection for arrival in arrivals])
        except SocketsError:  # the end of the channel follows
            pass
        finally:
            self._sending = None

    def _answered(self, data: bytes, sockets: list[socket.socket]) -> None:
        close_sockets(sockets)
        try:
            frame = decode_frame(data)
        except SocketsError:
            self._channel.abandon()
            return
        batch = self._sent.pop(frame.number, None) if frame.kind == "taken" else None
        if batch is not None:
            self._on_taken(batch.arrivals)

    def _check(self) -> None:
        self._timer = None
        oldest = next(iter(self._sent.values()), None)
        if oldest is None:
            return
        if oldest.deadline <= self._loop.time():
            self._channel.abandon()
        else:
            self._timer = self._loop.call_at(oldest.deadline, self._check)

    def _ended(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        left = [arrival for batch in self._sent.values() for arrival in batch.arrivals]
        left += self._queued
        self._sent.clear()
        self._queued.clear()
        self._on_end(left)
