"""Passes the connections of a shard that moves to its next home, if that is on the same machine (R5).

1. `hold`: nothing more is read from clients, and nothing of their queues is sent. What was read is worked off: SUBACK,
   PUBACK, PUBREC and PUBCOMP that are due are sent. So each connection stops at the end of a packet.
2. `leave`: each connection's state and socket go to the other gateway. Once it says that it has them, they are over
   here: the client gets no DISCONNECT, its will stays, and no presence event says that it has gone.

What does not come to rest in time, has no exact state, is too large, or is refused, stays; the caller disconnects it.
"""

import asyncio
import socket
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count
from typing import Final, NamedTuple

import structlog

from gateway.errors import SocketsError
from gateway.host.host_server import HostServer
from gateway.host.movable_connection import MovableConnection
from gateway.host.moved_records import CLIENT_BYTES, Offer, Taken, decode_frame, encode_client, encode_frame
from gateway.shard.session import Session
from gateway.shard.shard_home import ShardHome
from gateway.sockets.channel import FRAME_BYTES, FRAME_SOCKETS, Channel
from gateway.sockets.channels import close_sockets
from gateway.sockets.directory import SocketDirectory
from schemas.errors import RecordError

HOLD_S: Final = 2.0
ANSWER_S: Final = 1.5
"""Together with the last checkpoint less than a shard may take to freeze (:mod:`gateway.cluster.timings`)."""
_LOOK_S: Final = 0.002
_OVERHEAD: Final = 8
"""Bytes that a client's state takes in a frame besides its own."""

log = structlog.get_logger(__name__)


def handover_name(gateway: str) -> str:
    """Under what a gateway is found in the directory of sockets."""
    return f"handover/{gateway}"


class _Leaver(NamedTuple):
    session: Session
    connection: MovableConnection
    state: bytes
    socket: socket.socket


class Leaving:
    """The clients of `home`, which go to the gateway `to`. Implements
    :class:`gateway.shard.moved_clients.LeavingClients`."""

    def __init__(self, server: HostServer, directory: SocketDirectory, home: ShardHome, to: str) -> None:
        self._server, self._directory, self._home, self._to = server, directory, home, to
        self._channel: Channel | None = None
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        self._held: list[MovableConnection] = []
        self._answers: dict[int, asyncio.Future[Taken]] = {}

    async def hold(self) -> None:
        try:
            connection = self._directory.connect(handover_name(self._to))
        except SocketsError:  # it is on another machine
            return
        self._channel = Channel(connection, self._answered, self._ended)
        links = [session.link for session in self._home.sessions.values()]
        self._held = [link for link in links if isinstance(link, MovableConnection) and link.may_move]
        for link in self._held:
            link.hold_deliveries()
            link.stop_reading()
        self._until = self._loop.time() + HOLD_S
        await self._rest(self._held)

    async def leave(self) -> None:
        if self._channel is None:
            return
        left = 0
        try:
            held = set(self._held)
            sessions = [s for s in self._home.sessions.values() if s.link in held and s.persistent]
            writer = self._home.writer
            await asyncio.gather(*(writer.durable(partial(writer.windows, session)) for session in sessions))
            numbers = count()
            for start in range(0, len(sessions), FRAME_SOCKETS):
                some = sessions[start : start + FRAME_SOCKETS]
                await self._rest([s.link for s in some if isinstance(s.link, MovableConnection)])
                frames = list(_frames(self._leavers(some)))  # all of them while they are at rest
                try:
                    for leavers in frames:
                        left += await self._offer(self._channel, next(numbers), leavers)
                finally:
                    for leaver in chain.from_iterable(frames):
                        leaver.socket.close()
        except SocketsError as error:
            log.warning("clients cannot go on at the next gateway", to=self._to, reason=str(error))
        finally:
            self._channel.close()
        log.info("clients moved", shard=self._home.number, to=self._to, clients=left, held=len(self._held))

    async def _rest(self, connections: Sequence[MovableConnection]) -> None:
        """Returns once all are quiet, or no more time is left. A checkpoint may write to the session log at any time,
        and answers may wait for that."""
        while self._loop.time() < self._until and not all(connection.is_quiet for connection in connections):
            await asyncio.sleep(_LOOK_S)

    def _leavers(self, sessions: Iterable[Session]) -> Iterator[_Leaver]:
        for session in sessions:
            connection = session.link
            if not isinstance(connection, MovableConnection):  # it was lost meanwhile
                continue
            state = connection.export(self._server.now())
            encoded = b"" if state is None else encode_client(state)
            duplicate = connection.duplicate() if 0 < len(encoded) <= CLIENT_BYTES else None
            if duplicate is not None:
                yield _Leaver(session, connection, encoded, duplicate)

    async def _offer(self, channel: Channel, number: int, leavers: list[_Leaver]) -> int:
        """Returns how many have left. Raises SocketsError."""
        answer = self._answers[number] = self._loop.create_future()
        offer = Offer(self._home.number, self._home.spool.epoch, number, [leaver.state for leaver in leavers])
        try:
            async with asyncio.timeout(ANSWER_S):
                await channel.send(encode_frame(offer), [leaver.socket for leaver in leavers])
                taken = await answer
        except TimeoutError:
            raise SocketsError("the next gateway does not answer") from None
        gone = [leaver for place, leaver in enumerate(leavers) if place not in taken.refused]
        for leaver in gone:
            if leaver.session.link is leaver.connection:
                leaver.session.moved()
            leaver.connection.moved_away()
        return len(gone)

    def _answered(self, frame: bytes, sockets: list[socket.socket]) -> None:
        close_sockets(sockets)
        try:
            answer = decode_frame(frame)
        except RecordError:
            answer = None
        waiting = self._answers.get(answer.number) if isinstance(answer, Taken) else None
        if waiting is not None and not waiting.done() and isinstance(answer, Taken):
            waiting.set_result(answer)

    def _ended(self) -> None:
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(SocketsError("the next gateway has gone, or does not understand this one"))


def _frames(leavers: Iterable[_Leaver]) -> Iterator[list[_Leaver]]:
    """As many together as a frame takes."""
    some: list[_Leaver] = []
    size = 0
    for leaver in leavers:
        needed = len(leaver.state) + _OVERHEAD
        if some and (size + needed > FRAME_BYTES - 128 or len(some) == FRAME_SOCKETS):
            yield some
            some, size = [], 0
        some.append(leaver)
        size += needed
    if some:
        yield some
