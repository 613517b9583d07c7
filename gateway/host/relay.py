"""Relays a client's bytes to its home on another gateway, for clients that know no other way (G14).

The connection between the gateways begins with a PROXY header (:mod:`gateway.host.relay_header`), then what the client
has sent so far, untouched; the home reads CONNECT as from any client. Its first byte says whether it takes the client:

| byte       | then                  | meaning                                                            |
|------------|-----------------------|--------------------------------------------------------------------|
| `ACCEPTED` | MQTT                  | the home has the client's shard                                    |
| `MOVED`    | epoch, 8 bytes        | it has lost the shard: ask who has it at that epoch, and try again |

Nothing of the client was acted on before that byte, so trying again repeats nothing. A relayed connection is never
relayed again. :mod:`gateway.host.relays` tries, and decides when to give up.

Each side is read no faster than the other takes it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from struct import Struct
from typing import Final

from gateway.host import relay_header
from gateway.host.connection import Transport
from gateway.host.homes import HomeElsewhere
from gateway.host.relay_header import RelayedClient
from gateway.host.tls import common_name
from mqtt.codes import ReasonCode

ACCEPTED: Final = b"\x01"
MOVED: Final = b"\x02"
EPOCH: Final = Struct(">Q")


async def open_relay(
    transport: Transport,
    to: HomeElsewhere,
    tls: ssl.SSLContext | None,
    first: bytearray,
    write_buffer_bytes: int,
    ended: Callable[["Relay"], None],
) -> "Relay | int":
    """The relay, if the home takes the client; otherwise the epoch that the home knows. `first`: all bytes that the
    client has sent; more may be added until :meth:`Relay.begin`. `ended` is called once. Raises OSError, EOFError."""
    loop, side = asyncio.get_running_loop(), _HomeSide()
    link, _ = await loop.create_connection(
        lambda: side, to.address, to.port, ssl=tls, server_hostname=None if tls is None else ""
    )
    try:
        if tls is not None and common_name(link.get_extra_info("peercert")) != to.gateway:
            raise ConnectionError(f"{to.address}:{to.port} has no certificate of {to.gateway}")
        link.set_write_buffer_limits(high=write_buffer_bytes)
        client = RelayedClient(transport.peer, transport.bearer, transport.uses_tls, transport.certificate)
        sent = len(first)
        link.write(relay_header.encode(client) + first)
        epoch = await side.answer
    except BaseException:
        link.abort()
        raise
    if epoch is not None:
        link.abort()
        return epoch
    return Relay(transport, link, side, to, first, sent, ended)


class Relay:
    """One client's connection, :class:`gateway.host.connection.Connection` from when its home has taken it. Of `first`,
    what the client has sent by then, the home has `sent` bytes."""

    def __init__(
        self,
        transport: Transport,
        link: asyncio.Transport,
        side: "_HomeSide",
        to: HomeElsewhere,
        first: bytearray,
        sent: int,
        ended: Callable[["Relay"], None],
    ) -> None:
        self._transport, self._link, self._side = transport, link, side
        self._first, self._sent = first, sent
        self._ended = ended
        self._gone = False
        self.home = to
        self.writable = True

    def begin(self) -> None:
        """The transport is handed over. Reading from the client was paused until now."""
        if rest := bytes(self._first[self._sent :]):
            self._link.write(rest)
        self._first = bytearray()
        if not self._side.is_full:
            self._transport.resume_reading()
        self._side.begin(self)

    def abandon(self) -> None:
        """Instead of `begin`: the client has left meanwhile."""
        self._gone = True
        self._link.abort()

    # -- called by the client's transport ------------------------------------------------------------------------------

    def data_received(self, data: bytes | memoryview) -> None:
        if not self._gone:
            self._link.write(bytes(data))

    def transport_lost(self) -> None:
        self._leave()

    def writing_paused(self) -> None:
        self.writable = False
        if not self._gone:
            self._link.pause_reading()

    def writing_resumed(self) -> None:
        self.writable = True
        if not self._gone:
            self._link.resume_reading()

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
        self._link.close()
        self._ended(self)


class _HomeSide(asyncio.Protocol):
    """The connection to the home: first its answer, then its bytes."""

    def __init__(self) -> None:
        self._relay: Relay | None = None
        self._head = bytearray()
        self._is_lost = False
        self.is_full = False
        """Whether the home has yet to take what was written."""
        self.answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def begin(self, relay: Relay) -> None:
        """The relay takes what comes from now on."""
        self._relay = relay
        rest, self._head = bytes(self._head), bytearray()
        if rest:
            relay.from_home(rest)
        if self._is_lost:
            relay.home_lost()

    def data_received(self, data: bytes) -> None:
        if self._relay is not None:
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
        self.is_full = True
        if self._relay is not None:
            self._relay.home_full()

    def resume_writing(self) -> None:
        self.is_full = False
        if self._relay is not None:
            self._relay.home_takes()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if not self.answer.done():
            self.answer.set_exception(EOFError("the gateway has ended the relayed connection"))
        elif self._relay is not None:
            self._relay.home_lost()
        with contextlib.suppress(asyncio.InvalidStateError, asyncio.CancelledError):
            self.answer.exception()  # taken, whether or not anybody waits
