"""Relays a client's bytes to its home on another gateway, for clients that know no other way (G14).

The connection between the gateways begins with a PROXY header (:mod:`gateway.host.relay_header`), then what the client
has sent so far, untouched; the home reads CONNECT as from any client. Its first byte says whether it takes the client:

| byte       | then                  | meaning                                                            |
|------------|-----------------------|--------------------------------------------------------------------|
| `ACCEPTED` | MQTT                  | the home has the client's shard                                    |
| `MOVED`    | epoch, 8 bytes        | it has lost the shard: ask who has it at that epoch, and try again |

Nothing of the client was acted on before that byte, so trying again repeats nothing. A relayed connection is never
relayed again. After TRIES the client gets 0x88 (MQTT 3.1.1: 3), and comes back.

Each side is read no faster than the other takes it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from struct import Struct
from typing import Final

import structlog

from gateway.host import relay_header
from gateway.host.connection import Transport
from gateway.host.homes import HomeElsewhere, Homes
from gateway.host.host_server import HostServer
from gateway.host.relay_header import RelayedClient
from gateway.host.tls import common_name
from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.packets import Connack

ACCEPTED: Final = b"\x01"
MOVED: Final = b"\x02"
EPOCH: Final = Struct(">Q")
TRIES: Final = 3
"""One with the owner as known, two with owners that the home's answer named."""

log = structlog.get_logger(__name__)


class Relay:
    """One client's connection, :class:`gateway.host.connection.Connection` from when its CONNECT was read. `first`: all
    bytes that the client has sent by then; `version`: of MQTT; `ended` is told once."""

    def __init__(
        self,
        server: HostServer,
        transport: Transport,
        homes: Homes,
        tls: ssl.SSLContext | None,
        client: str,
        first: bytes,
        version: int,
        ended: Callable[["Relay"], None],
    ) -> None:
        self._server, self._transport, self._homes, self._tls = server, transport, homes, tls
        self._client, self._version, self._ended = client, version, ended
        self._unsent = bytearray(first)
        self._home: asyncio.Transport | None = None
        self._shard: int | None = None
        self._gone = False
        self.writable = True

    @property
    def shard(self) -> int | None:
        """The shard whose home has the client; None before it has said so."""
        return self._shard

    async def begin(self, to: HomeElsewhere) -> None:
        """Finds the home that takes the client. Reading from the client is paused until then."""
        where: HomeElsewhere | None = to
        for _ in range(TRIES):
            if where is None or self._gone:
                break
            try:
                async with asyncio.timeout(self._server.limits.connect_timeout_s):
                    epoch = await self._try(where)
            except (OSError, TimeoutError, EOFError, ssl.SSLError) as error:
                self._server.counts["relays_failed"] += 1
                log.debug("cannot relay to a gateway", gateway=where.gateway, reason=str(error) or type(error).__name__)
                epoch = where.epoch + 1  # whoever takes over has a higher one
            if epoch is None:
                return
            where = await self._homes.newer(self._client, epoch)
        self._refuse()

    async def _try(self, where: HomeElsewhere) -> int | None:
        """None if the home takes the client; otherwise the epoch that it knows. Raises OSError, EOFError."""
        loop = asyncio.get_running_loop()
        side = _HomeSide(self)
        transport, _ = await loop.create_connection(
            lambda: side, where.address, where.port, ssl=self._tls, server_hostname=None if self._tls is None else ""
        )
        link = transport
        try:
            if self._tls is not None and common_name(link.get_extra_info("peercert")) != where.gateway:
                raise ConnectionError(f"{where.address}:{where.port} has no certificate of {where.gateway}")
            client = RelayedClient(self._transport.peer, self._transport.bearer, self._transport.certificate)
            link.write(relay_header.encode(client) + self._unsent)
            epoch = await side.answer
        except BaseException:
            link.abort()
            raise
        if epoch is not None or self._gone:
            link.abort()
            return epoch
        self._home, self._shard = link, where.shard
        self._server.counts["relays_opened"] += 1
        self._unsent.clear()
        link.set_write_buffer_limits(high=self._server.limits.write_buffer_bytes)
        self._transport.resume_reading()
        side.begin()
        return None

    def _refuse(self) -> None:
        if not self._gone:
            self._server.counts["relays_refused"] += 1
            self._transport.write(encode(Connack(False, ReasonCode.SERVER_UNAVAILABLE), self._version))
            self._leave()

    # -- called by the client's transport ------------------------------------------------------------------------------

    def data_received(self, data: bytes | memoryview) -> None:
        """From the client; before the home has it, few bytes, as reading is paused."""
        if self._home is None:
            self._unsent += data
            if len(self._unsent) > self._server.limits.packet_bytes + self._server.limits.write_buffer_bytes:
                self._leave()
        else:
            self._home.write(bytes(data))

    def transport_lost(self) -> None:
        self._leave()

    def writing_paused(self) -> None:
        self.writable = False
        if self._home is not None:
            self._home.pause_reading()

    def writing_resumed(self) -> None:
        self.writable = True
        if self._home is not None:
            self._home.resume_reading()

    # -- called by the side of the home --------------------------------------------------------------------------------

    def from_home(self, data: bytes) -> None:
        if not self._gone:
            self._transport.write(data)

    def home_full(self) -> None:
        self._transport.pause_reading()

    def home_takes(self) -> None:
        if not self._gone:
            self._transport.resume_reading()

    def home_lost(self) -> None:
        """The home has ended the connection, or is gone: so is the client's, and it comes back."""
        self._leave()

    # -- called by the server ------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """The home checks deadlines."""

    def flush(self) -> None:
        """Nothing is collected here."""

    def read_on(self) -> None:
        """Only the home makes the client wait."""

    def hold_deliveries(self) -> None:
        """They are the home's."""

    def stop_reading(self) -> None:
        self._transport.pause_reading()

    @property
    def awaits_client(self) -> bool:
        return False

    @property
    def awaits_kafka(self) -> bool:
        return False

    def disconnect(self, reason: ReasonCode) -> None:
        """Ends it without a packet: this gateway does not know where in the stream one may stand."""
        self._leave()

    def _leave(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._transport.close()
        if self._home is not None:
            self._home.close()
        self._ended(self)


class _HomeSide(asyncio.Protocol):
    """The connection to the home: first its answer, then its bytes."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._head = bytearray()
        self._is_begun = self._is_lost = False
        self.answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """The relay takes what comes from now on."""
        self._is_begun = True
        rest, self._head = bytes(self._head), bytearray()
        if rest:
            self._relay.from_home(rest)
        if self._is_lost:
            self._relay.home_lost()

    def data_received(self, data: bytes) -> None:
        if self._is_begun:
            self._relay.from_home(data)
            return
        self._head += data
        if self.answer.done():
            return
        if self._head.startswith(ACCEPTED):
            del self._head[: len(ACCEPTED)]
            self.answer.set_result(None)
        elif not self._head.startswith(MOVED):
            self.answer.set_exception(EOFError("the gateway answers with what is no answer to a relayed connection"))
        elif len(self._head) >= len(MOVED) + EPOCH.size:
            self.answer.set_result(EPOCH.unpack_from(self._head, len(MOVED))[0])

    def pause_writing(self) -> None:
        self._relay.home_full()

    def resume_writing(self) -> None:
        self._relay.home_takes()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if not self.answer.done():
            self.answer.set_exception(EOFError("the gateway has ended the relayed connection"))
        elif self._is_begun:
            self._relay.home_lost()
        with contextlib.suppress(asyncio.InvalidStateError, asyncio.CancelledError):
            self.answer.exception()  # taken, whether or not anybody waits
