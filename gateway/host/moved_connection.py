"""A connection that has come from another gateway of the machine: how it goes on (R5)."""

import asyncio
from typing import Final

from gateway.host.authenticator import Credentials, NotAdmitted, Proven
from gateway.host.close_reasons import CONNECTION_LOST
from gateway.host.host_server import HostServer
from gateway.host.movable_connection import MovableConnection
from gateway.host.moved_records import ClientState
from gateway.host.outbound import PublishEncoder
from gateway.host.rate_limit import RateLimit
from gateway.host.tcp import MqttTcpProtocol
from gateway.shard.moved_clients import MovedClient
from gateway.shard.rules import ClientRules, Paced
from gateway.shard.shard_home import Attached
from mqtt.aliases import OutboundAliases
from mqtt.codes import VERSION_5, ReasonCode
from mqtt.server_connection import ServerConnection

WAIT_S: Final = 3.0
"""How long a connection waits, after its shard has begun, for what its client has in hand to come again."""


class MovedConnection(MovableConnection):
    """Goes on where the former home's connection stopped: after `attach` and `begin`, and once all that the client has
    in hand has come again. Until then nothing is read from the client, and nothing is sent to it."""

    def __init__(self, server: HostServer, transport: MqttTcpProtocol, state: ClientState) -> None:
        super().__init__(server, transport)
        of = state.connection
        self._state = state
        self._core = ServerConnection.resumed(of, server.connection_limits, server.now(), server.traffic)
        self._version, self._until, self._first = of.version, state.until, None
        aliases = OutboundAliases.resumed(state.aliases) if of.version == VERSION_5 else None
        self._encoder = PublishEncoder(of.version, aliases, server.clock)
        self._waits_for_messages = bool(state.session.in_hand)
        self._has_begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._early = bytearray(state.connection.unread)
        self._is_held, self._is_leaving = True, False
        super().hold_deliveries()
        self.stop_reading()

    def data_received(self, data: bytes | memoryview) -> None:
        """uvloop reads once before it pauses."""
        if self._is_held:
            self._early += data
            self._transport.pause_reading()
        else:
            super().data_received(data)

    def hold_deliveries(self) -> None:
        """Its shard moves again: a connection that has not gone on here by now does not any more."""
        self._is_leaving = True
        super().hold_deliveries()

    def export(self, now: float) -> ClientState | None:
        return None if self._is_held else super().export(now)

    @property
    def credentials(self) -> Credentials:
        """Whose connection it is, as the former home has proven."""
        state, transport = self._state, self._transport
        return Credentials(
            state.connection.client,
            None,
            None,
            state.certificate,
            state.peer,
            transport.bearer,
            Proven(state.user, state.until),
        )

    def moved_client(self, rules: ClientRules) -> MovedClient:
        """As the home of the shard is to know it."""
        is_v5, state = self._version == VERSION_5, self._state
        if isinstance(rules, Paced):
            self._rate_limit = RateLimit(rules, self.read_on)
        return MovedClient(
            state.connection.client,
            state.session,
            self,
            rules,
            state.peer,
            "mqtt5" if is_v5 else "mqtt3.1.1",
            is_v5,
            lambda: self._server.soon(self._all_in_hand),
        )

    def attach(self, attached: Attached) -> None:
        self._attached = attached
        if self._is_over():
            attached.home.detach(attached.session, self, send_will=True, reason=CONNECTION_LOST)

    async def begin(self) -> None:
        """Records come to the shard from now on."""
        attached = self._attached
        if self._is_over() or attached is None:
            return
        try:
            await attached.home.end_forbidden(attached.session)
        except NotAdmitted as error:
            self.disconnect(error.reason)
            return
        self._has_begun = True
        if self._waits_for_messages:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self.disconnect, ReasonCode.SERVER_MOVED)
            attached.home.deliverer.load(attached.session)
        else:
            self._go_on()

    def _all_in_hand(self) -> None:
        self._waits_for_messages = False
        if self._has_begun:
            self._go_on()

    def _go_on(self) -> None:
        attached = self._attached
        if self._timer is not None:
            self._timer.cancel()
        if self._is_over() or self._is_leaving or attached is None:
            return
        now, state = self._server.now(), self._state.connection
        self._delivers = self.writable = self._reads = True
        self._is_held = False
        self._core.heard(now - state.idle_s)
        self._take(self._core.receive(bytes(self._early), now))
        self._early.clear()
        self.read_on()
        if not self._is_over():
            attached.home.writable(attached.session, self)


class MovedTransport(MqttTcpProtocol):
    """The transport of a connection that has come from another gateway; `connection` once it is made."""

    def __init__(self, server: HostServer, state: ClientState) -> None:
        super().__init__(server)
        self._state = state
        self.connection: MovedConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open(transport)
        self.peer, self.uses_tls, self.certificate = self._state.peer, self._state.uses_tls, self._state.certificate
        self._connection = self.connection = MovedConnection(self._server, self, self._state)
