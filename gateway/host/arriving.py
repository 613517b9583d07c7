"""Takes connections of shards that move here from other gateways of the machine (R5).

The sockets come before their shard does. They wait, unread, until it begins; then each goes on where it stopped. One
whose shard does not come in time, or comes after another gateway may have had it, is disconnected (0x9D): its client
comes back, as after any other move.
"""

import asyncio
import contextlib
import socket
from typing import Final, NamedTuple

import structlog

from gateway.errors import NotAdmitted, SocketsError
from gateway.host.host_server import HostServer
from gateway.host.leaving import Leaving, handover_name
from gateway.host.moved_connection import MovedConnection, MovedTransport
from gateway.host.moved_records import ClientState, Offer, Taken, decode_client, decode_frame, encode_frame
from gateway.shard.moved_clients import CLAIMS_APART
from gateway.shard.shard_home import ShardHome
from gateway.sockets.channel import Channel
from gateway.sockets.channels import Channels
from gateway.sockets.directory import SocketDirectory
from mqtt.codes import VERSION_5, ReasonCode
from mqtt.encode import encode
from mqtt.packets import Disconnect
from schemas.errors import RecordError

WAIT_S: Final = 5.0
"""How long sockets wait for their shard: as long as it may take to freeze, and to be claimed."""

_NOT_HERE: Final = "the session is at another gateway"

log = structlog.get_logger(__name__)


class _Waiting(NamedTuple):
    state: ClientState
    socket: socket.socket
    epoch: int
    until: float


class Moves:
    """The gateway `name`'s part in moves of connections. Implements
    :class:`gateway.shard.moved_clients.MovedClients`. `directory` is where gateways of the machine meet."""

    def __init__(self, server: HostServer, directory: SocketDirectory, name: str) -> None:
        self._server, self._directory, self._name = server, directory, name
        self._loop = asyncio.get_running_loop()
        self._channels: Channels | None = None
        self._waiting: dict[int, list[_Waiting]] = {}
        self._arrived: dict[int, list[MovedConnection]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Raises SocketsError."""
        self._channels = Channels(self._directory, handover_name(self._name), self._take)

    def stop(self) -> None:
        """Takes no more; who still waits is disconnected."""
        if self._channels is not None:
            self._channels.close()
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._waiting.values():
            for one in waiting:
                _turn_away(one)
        self._waiting.clear()
        self._directory.close()

    @property
    def waiting(self) -> int:
        """Sockets whose shard has not begun here."""
        return sum(len(waiting) for waiting in self._waiting.values())

    # -- MovedClients --------------------------------------------------------------------------------------------------

    def leaving(self, home: ShardHome, to: str) -> Leaving:
        return Leaving(self._server, self._directory, home, to)

    async def arrive(self, home: ShardHome) -> None:
        waiting, epoch = self._waiting.pop(home.number, []), home.spool.epoch
        here = []
        for one in waiting:
            if one.epoch < epoch <= one.epoch + CLAIMS_APART:
                here.append(one)
            else:
                _turn_away(one)
        arrived = [connection for one in here if (connection := await self._attach(home, one)) is not None]
        if arrived:
            self._arrived[home.number] = arrived
        if waiting:
            log.info("clients moved here", shard=home.number, clients=len(arrived), came=len(waiting))

    async def go_on(self, home: ShardHome) -> None:
        for connection in self._arrived.pop(home.number, ()):
            await connection.begin()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _attach(self, home: ShardHome, one: _Waiting) -> MovedConnection | None:
        try:
            _, transport = await self._loop.connect_accepted_socket(
                lambda: MovedTransport(self._server, one.state), one.socket
            )
        except OSError:
            one.socket.close()
            return None
        connection = transport.connection
        try:
            rules = await self._server.authenticator.admit(connection.credentials)
            connection.attach(home.move_in(connection.moved_client(rules)))
        except NotAdmitted as error:
            log.info("a client that has moved is disconnected", client=one.state.connection.client, reason=str(error))
            connection.disconnect(ReasonCode.SERVER_MOVED)
            return None
        return connection

    def _take(self, channel: Channel, frame: bytes, sockets: list[socket.socket]) -> None:
        try:
            offer = decode_frame(frame)
        except RecordError as error:
            log.warning("another gateway passes what is not understood", reason=str(error))
            offer = None
        if not isinstance(offer, Offer) or len(offer.clients) != len(sockets):
            if self._channels is not None:
                self._channels.refuse(channel, sockets)
            return
        until, refused = self._loop.time() + WAIT_S, []
        for place, (raw, one) in enumerate(zip(offer.clients, sockets, strict=True)):
            try:
                if len(self._server.connections) + self.waiting >= self._server.limits.connections:
                    raise RecordError("there are as many connections as are allowed")
                waiting = _Waiting(decode_client(raw), one, offer.epoch, until)
            except RecordError as error:
                log.warning("a client's connection cannot go on here", reason=str(error))
                one.close()
                refused.append(place)
            else:
                self._waiting.setdefault(offer.shard, []).append(waiting)
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._look)
        self._server.spawn(_answer(channel, Taken(offer.number, refused)))

    def _look(self) -> None:
        """Turns away those that have waited for too long."""
        now, next_at = self._loop.time(), []
        self._timer = None
        for shard, waiting in list(self._waiting.items()):
            for one in waiting:
                if one.until <= now:
                    _turn_away(one)
            left = self._waiting[shard] = [one for one in waiting if one.until > now]
            next_at += [one.until for one in left]
            if not left:
                del self._waiting[shard]
        if next_at:
            self._timer = self._loop.call_at(min(next_at), self._look)


async def _answer(channel: Channel, taken: Taken) -> None:
    with contextlib.suppress(SocketsError):  # the former home has gone
        await channel.send(encode_frame(taken))


def _turn_away(one: _Waiting) -> None:
    """Ends the connection; the system takes a packet of this size at once, or the client has not read for long."""
    with contextlib.suppress(OSError):
        if one.state.connection.version == VERSION_5:
            one.socket.send(encode(Disconnect(ReasonCode.SERVER_MOVED), VERSION_5))
        one.socket.shutdown(socket.SHUT_WR)
    one.socket.close()
