"""Brings clients to their homes: here, by a redirect, or by a relay (G14; design: one home for each shard).

| the client's home                       | then                                                                       |
|-----------------------------------------|----------------------------------------------------------------------------|
| is here                                 | it is served here                                                          |
| is elsewhere                            | it is relayed; if the gateway is set to redirect, and the client says that |
|                                         | it follows a Server Reference, it gets that instead (MQTT 5, 0x9C)         |
| is starting, or its owner changes       | it waits, for a bounded time                                               |
| is nowhere in time, or does not answer  | it is refused with 0x88 (MQTT 3.1.1: 3), and comes back                    |

After a member was lost its clients come all at once. Those that are served here or relayed are let in at a ramp
(:mod:`gateway.cluster.connect_ramp`), once their homes are known: until then all of them wait for the same takeover.
Who would wait for too long is refused with 0x89 (MQTT 3.1.1: 3).

A relay is tried TRIES times: once with the owner as known, then with the owners that follow it. A try ends at once when
the shard has another owner: a gateway that has been stopped, not killed, would not answer for long.

A connection that another gateway relays is never relayed again. If the client's home is not here, the other gateway is
told the epoch, and asks who has the shard.
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from gateway.cluster.connect_ramp import ConnectRamp
from gateway.host.close_reasons import RELAYED
from gateway.host.connection import Transport, public_bearer
from gateway.host.handshake import follows_reference
from gateway.host.home_calls import HomeCalls
from gateway.host.homes import HomeElsewhere, Homes
from gateway.host.host_server import HostServer
from gateway.host.relay import EPOCH, MOVED, Relay, open_relay
from mqtt.codes import ReasonCode
from mqtt.packets import Connect

if TYPE_CHECKING:  # it loads what only clusters need
    from gateway.host.member_tls import MemberTls

TRIES: Final = 3
_LEAVING: Final = frozenset({ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED, ReasonCode.SERVER_SHUTTING_DOWN})

log = structlog.get_logger(__name__)


class Refusal(NamedTuple):
    """With what the client's connection ends here."""

    reason: ReasonCode
    properties: dict[str, Any] | None = None


class Relays:
    """The relays of one gateway. `tls`: how it proves to other members who it is; None without TLS. `redirects`:
    whether clients that follow a Server Reference get one. `ramp`: how new connections are let in after a loss, None
    if all are at once."""

    def __init__(
        self,
        server: HostServer,
        homes: Homes,
        tls: "MemberTls | None",
        redirects: bool,
        ramp: ConnectRamp | None = None,
    ) -> None:
        self._server, self._homes, self._tls, self._redirects = server, homes, tls, redirects
        self.ramp = ramp
        self._open: set[Relay] = set()
        self._tries: dict[asyncio.Timeout, HomeElsewhere] = {}
        self.calls = HomeCalls(homes, tls, server.limits.connect_timeout_s, server.counts)
        """Requests to other gateways, for clients that are not relayed."""

    def __len__(self) -> int:
        return len(self._open)

    async def bring_home(self, transport: Transport, connect: Connect, first: bytearray) -> Relay | Refusal | None:
        """What becomes of a connection whose CONNECT was read; None if the client's home is here. `first`: all bytes
        that the client has sent, to which more may be added meanwhile. A relay has yet to begin, or be abandoned."""
        client = connect.client_id
        found: Relay | Refusal | None = None
        if self._homes.is_here(client):
            return await self._on_ramp()
        try:
            async with asyncio.timeout(self._server.limits.connect_timeout_s) as scope:
                where = self._homes.elsewhere(client) or await self._homes.newer(client, 0)
                if where is not None and transport.refuse is None:
                    found = self._redirect(transport, connect, client) or await self._on_ramp(scope)
                    found = found or await self._relay(transport, client, where, first)
        except TimeoutError:
            log.debug("a client was not brought to its home in time", client=client[:64])
        if found is not None:
            return found
        if self._homes.is_here(client):
            return await self._on_ramp()
        if transport.refuse is not None:
            transport.refuse(MOVED + EPOCH.pack(self._homes.epoch(client)))
            return Refusal(ReasonCode.USE_ANOTHER_SERVER)
        self._server.counts["relays_refused"] += 1
        return Refusal(ReasonCode.SERVER_UNAVAILABLE)

    def ending(
        self, transport: Transport, connect: Connect, client: str, reason: ReasonCode
    ) -> tuple[ReasonCode, dict[str, Any] | None]:
        """The reason code and properties with which a connection of this gateway ends for `reason`: a client that has
        to leave learns where to go if it follows that."""
        if reason in _LEAVING:
            found = self._redirect(transport, connect, client)
            if found is not None:
                reason = ReasonCode.SERVER_MOVED if reason is ReasonCode.SERVER_SHUTTING_DOWN else reason
                return reason, found.properties
            if reason is ReasonCode.USE_ANOTHER_SERVER:
                return ReasonCode.SERVER_UNAVAILABLE, None  # without an address, clients come back here for another one
        return reason, None

    def owner_changed(self, shard: int) -> None:
        """The shard's lease has changed. If another gateway has it now, clients that are relayed to its former home
        come back."""
        for relay in [one for one in self._open if one.home.shard == shard and not self._homes.is_owner(one.home)]:
            relay.home_lost()
        for scope, where in self._tries.items():
            if where.shard == shard and not self._homes.is_owner(where) and not scope.expired():
                scope.reschedule(0.0)
        self.calls.owner_changed(shard)

    async def _on_ramp(self, scope: asyncio.Timeout | None = None) -> Refusal | None:
        """Waits until a connection may go on after a member was lost; its refusal if that would take too long. The end
        of `scope` is put off by as much."""
        wait_s = 0.0 if self.ramp is None else self.ramp.delay(self._server.now())
        if wait_s is None:
            self._server.counts["connects_refused_busy"] += 1
            return Refusal(ReasonCode.SERVER_BUSY)
        if wait_s:
            self._server.counts["connects_delayed"] += 1
            if scope is not None and (ends := scope.when()) is not None:
                scope.reschedule(ends + wait_s)
            await asyncio.sleep(wait_s)
        return None

    def _redirect(self, transport: Transport, connect: Connect, client: str) -> Refusal | None:
        if not self._redirects or not follows_reference(connect):
            return None
        reference = self._homes.reference(client, public_bearer(transport))
        if reference is None:
            return None
        self._server.counts["redirects"] += 1
        return Refusal(ReasonCode.USE_ANOTHER_SERVER, {"server_reference": reference})

    async def _relay(self, transport: Transport, client: str, to: HomeElsewhere, first: bytearray) -> Relay | None:
        where: HomeElsewhere | None = to
        for _ in range(TRIES):
            if where is None or not where.port:
                break
            found = await self._try(transport, where, first)
            if isinstance(found, Relay):
                self._open.add(found)
                self._server.counts["relays_opened"] += 1
                return found
            where = await self._homes.newer(client, found)
        return None

    async def _try(self, transport: Transport, where: HomeElsewhere, first: bytearray) -> Relay | int:
        """The relay, or the epoch that the shard has at least."""
        limits = self._server.limits
        context: ssl.SSLContext | None = None if self._tls is None else self._tls.client
        scope = asyncio.timeout(limits.connect_timeout_s)
        self._tries[scope] = where
        try:
            async with scope:
                return await open_relay(transport, where, context, first, limits.write_buffer_bytes, self._ended)
        except (OSError, EOFError, ValueError) as error:  # ValueError: the member's address is none
            self._server.counts["relays_failed"] += 1
            log.debug("cannot relay to a gateway", gateway=where.gateway, reason=str(error) or type(error).__name__)
            return where.epoch + 1  # whoever takes over has a higher one
        finally:
            del self._tries[scope]

    def abandon(self, relay: Relay) -> None:
        """The client has left before its relay began."""
        relay.abandon()
        self._open.discard(relay)

    def _ended(self, relay: Relay) -> None:
        """The connection has ended."""
        self._open.discard(relay)
        self._server.gone(relay, RELAYED)
