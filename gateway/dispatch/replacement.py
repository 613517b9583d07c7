"""A dispatcher takes the place of the running one, and no client is refused in between (R1, R5).

The successor gets the listening sockets, so that for a moment both accept from them. Then the earlier one accepts no
more. A connection that is in the queue of a listening socket is accepted by whoever is there. If the successor dies
before it accepts, nothing has changed.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gateway.dispatch.frames import DISPATCHER, Frame, decode_frame, encode_frame
from gateway.errors import SocketsError
from gateway.sockets.channel import Channel
from gateway.sockets.channels import Channels, close_sockets
from gateway.sockets.directory import SocketDirectory

ANSWER_S: Final = 5.0
"""How long a running dispatcher may take to answer."""

log = structlog.get_logger(__name__)


class Replaceable:
    """Offers the sockets of `listening` to a successor, one at a time, until it is closed. `on_replaced` is called once
    the successor accepts from them."""

    def __init__(
        self,
        directory: SocketDirectory,
        listening: Callable[[], Sequence[socket.socket]],
        on_replaced: Callable[[], None],
    ) -> None:
        self._listening, self._on_replaced = listening, on_replaced
        self._successor: Channel | None = None
        self._sending: set[asyncio.Future[None]] = set()
        self._channels = Channels(directory, DISPATCHER, self._came, self._ended)

    def close(self) -> None:
        self._channels.close()

    def _came(self, channel: Channel, data: bytes, sockets: list[socket.socket]) -> None:
        close_sockets(sockets)
        try:
            kind = decode_frame(data).kind
        except SocketsError:
            kind = "taken"  # nothing that a successor says
        if kind == "ask" and self._successor is None:
            self._successor = channel
            listening = list(self._listening())
            frame = encode_frame(Frame("listening", len(listening)))
            sending = asyncio.ensure_future(_send(channel, frame, listening))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        elif kind == "accepting" and self._successor is channel:
            self._on_replaced()
        else:
            self._channels.refuse(channel)
            self._ended(channel)

    def _ended(self, channel: Channel) -> None:
        if self._successor is channel:
            self._successor = None


class Predecessor:
    """The running dispatcher: `listening` are its sockets, which are now the caller's."""

    def __init__(self, channel: Channel, listening: Sequence[socket.socket]) -> None:
        self._channel, self.listening = channel, listening

    async def accepting(self) -> None:
        """Clients are accepted here; the running dispatcher ends. It may have ended already."""
        await _send(self._channel, encode_frame(Frame("accepting")))
        self._channel.close()


async def find_predecessor(directory: SocketDirectory, timeout_s: float = ANSWER_S) -> Predecessor | None:
    """None if no dispatcher is running. Raises SocketsError if it does not give its sockets: it stands still, or is
    being replaced already."""
    try:
        connection = directory.connect(DISPATCHER)
    except SocketsError:
        return None
    answered: asyncio.Future[list[socket.socket]] = asyncio.get_running_loop().create_future()

    def came(data: bytes, sockets: list[socket.socket]) -> None:
        if answered.done():
            close_sockets(sockets)
        else:
            answered.set_result(sockets)

    def ended() -> None:
        if not answered.done():
            answered.set_result([])

    channel = Channel(connection, came, ended)
    try:
        await _send(channel, encode_frame(Frame("ask")))
        async with asyncio.timeout(timeout_s):
            listening = await answered
    except TimeoutError:
        listening = []
    if not listening:
        channel.close()
        raise SocketsError(
            "the running dispatcher does not pass its listening sockets: it stands still, ends, or is being replaced"
        )
    return Predecessor(channel, listening)


async def _send(channel: Channel, frame: bytes, sockets: Sequence[socket.socket] = ()) -> None:
    try:
        await channel.send(frame, sockets)
    except SocketsError as error:
        log.warning("the other dispatcher has gone", reason=str(error))
