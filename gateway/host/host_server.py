"""All connections of a gateway: their shared state, and the timers that flush and check them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from gateway.counts import Counts
from gateway.host.authenticator import Authenticator, Credentials, NotAdmitted, OpenAuthenticator
from gateway.host.close_reasons import CloseLog
from gateway.host.connection import Connection, Transport
from gateway.host.drain import drain
from gateway.host.homes import Homes
from gateway.host.refusal_log import RefusalLog
from gateway.host.watermarks import is_above
from gateway.shard.home import Home
from mqtt.counters import TrafficCounters
from mqtt.limits import ConnectionLimits
from mqtt.server_connection import ServerConnection
from schemas.settings import GatewaySettings

if TYPE_CHECKING:  # it needs the server
    from gateway.cluster.connect_ramp import ConnectRamp
    from gateway.host.member_tls import MemberTls
    from gateway.host.relays import Relays

_READ_BUFFER_BYTES = 32 * 1024
"""The most bytes read from one connection before others get a turn (R9)."""

_WATCH_S = 0.5

log = structlog.get_logger(__name__)


class HostServer:
    """Connections register here. `dirty` ones are written together at the end of a loop iteration. `paused` ones are
    not read because too much from all clients together is in flight to Kafka."""

    def __init__(
        self,
        settings: GatewaySettings,
        home: Home,
        clock: Callable[[], float],
        in_flight: Callable[[], int],
        on_fatal: Callable[[Exception], None],
        authenticator: Authenticator | None = None,
    ) -> None:
        self.authenticator = authenticator or OpenAuthenticator()
        self.limits = settings.limits
        self.response_prefix = settings.response_prefix
        self.home = home
        self.clock = clock
        self.in_flight = in_flight
        self.connection_limits = ConnectionLimits(
            max_packet_size=settings.limits.packet_bytes,
            receive_maximum=settings.limits.receive_maximum,
            topic_alias_maximum=settings.limits.topic_alias_maximum,
            keep_alive_max_s=settings.limits.keep_alive_s,
            connect_timeout_s=settings.limits.connect_timeout_s,
        )
        self.connections: set[Connection] = set()
        self.transports: set[Transport] = set()
        """Of clients over TCP and QUIC; also those whose connection has ended but who have yet to close their side."""
        self.paused: set[Connection] = set()
        self.read_buffer = memoryview(bytearray(_READ_BUFFER_BYTES))
        """What a connection over TCP reads into; taken before the loop turns to the next one."""
        self.http_connections = 0
        self.counts = Counts[str]()
        self.traffic = TrafficCounters()
        self.relays: Relays | None = None
        """Brings clients to their homes at other gateways; None while there are none. :meth:`relay_to` gives it."""
        self.member_http: Callable[[], asyncio.BaseProtocol] | None = None
        """Takes a connection of another gateway that has HTTP requests; the HTTP bearer gives it."""
        self.member_requests: dict[tuple[str, str], Callable[[Any], Awaitable[Any]]] = {}
        """What other gateways may ask besides what clients may: handlers by method and path."""
        self.waiting_requests: Callable[[], int] = int
        """How many requests over HTTP wait for replies; the HTTP bearer gives it."""
        self._redirects = settings.cluster.server_reference
        self.hold = home.hold
        self.dirty = _DirtySet(self)
        self.close_log = CloseLog(self.now)
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals = RefusalLog(self.now)
        self._watch = self._loop.call_later(_WATCH_S, self._watch_all)

    def now(self) -> float:
        """Monotonic seconds, for deadlines."""
        return self._loop.time()

    def is_full(self) -> bool:
        return len(self.connections) + self.http_connections > self.limits.connections

    def is_flooded(self, half: bool = False) -> bool:
        """Whether too much from all clients is in flight to Kafka; with `half`, over half the limit."""
        limits = self.limits
        if is_above(self.home.in_flight_bytes, limits.in_flight_bytes, half):
            return True
        return is_above(self.in_flight(), limits.in_flight_messages, half)

    def read_on(self) -> None:
        """Resumes connections paused by the shared in-flight limit, once the load has fallen."""
        if self.paused and not self.is_flooded(half=True):
            paused, self.paused = self.paused, set()
            for connection in paused:
                connection.read_on()

    def not_admitted(self, credentials: Credentials, error: NotAdmitted) -> None:
        """A client was refused: counts it and logs it, unless too many are."""
        self.counts["not_admitted"] += 1
        self._refusals.refused(credentials, error)

    def will_left_out(self, credentials: Credentials, topic: str) -> None:
        """A bridge was accepted without its will, whose topic is reserved for the gateway."""
        self.counts["will_left_out"] += 1
        log.info(
            "bridge accepted without its will",
            client=credentials.client[:128],
            peer=credentials.peer,
            topic=topic[:128],
        )

    def drop_unverified(self, core: ServerConnection) -> None:
        """A connection ends: what the process may not send yet is never sent."""
        if self.hold.is_on:
            core.drop_outgoing()

    def relay_to(self, homes: Homes, tls: "MemberTls | None", ramp: "ConnectRamp | None" = None) -> "Relays":
        """From now on clients whose home is elsewhere are brought there; `tls` shows other members who this one is;
        `ramp`: how clients are let in after a loss. Call it before the listeners open."""
        from gateway.host.relays import Relays

        self.relays = Relays(self, homes, tls, self._redirects, ramp)
        return self.relays

    def replaced(self, connection: Connection, by: Connection) -> None:
        """A connection goes on as another kind of connection."""
        self.connections.discard(connection)
        self.connections.add(by)

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.counts["connections_opened"] += 1

    def gone(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        self.counts[f"closed_{reason}"] += 1

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def soon(self, action: Callable[..., object], *arguments: object) -> None:
        """Runs `action` after the current event."""
        self._loop.call_soon(action, *arguments)

    async def stop(self) -> None:
        """Ends every connection in order (:mod:`gateway.host.drain`), and lets running work finish."""
        self._watch.cancel()
        await drain(self.connections)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._on_fatal(error)

    def _watch_all(self) -> None:
        self._watch = self._loop.call_later(_WATCH_S, self._watch_all)
        for connection in list(self.connections):
            connection.tick()


class _DirtySet:
    """Connections with bytes to write. The first one added schedules a write of all after this loop iteration. While
    the process may send nothing they wait."""

    def __init__(self, server: HostServer) -> None:
        self._server = server
        self._connections: set[Connection] = set()

    def add(self, connection: Connection) -> None:
        if not self._connections:
            self._server.soon(self._flush)
        self._connections.add(connection)

    def _flush(self) -> None:
        if self._server.hold.is_on:
            self._server.hold.after(self._flush)
            return
        connections, self._connections = self._connections, set()
        for connection in connections:
            connection.flush()
            connection.read_on()
        self._server.read_on()
