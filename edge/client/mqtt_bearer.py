"""MQTT as a bearer of the client library: over TCP, TLS, WebSocket and QUIC (G11)."""

import logging
import ssl
from typing import Final

from edge.client.bearer_client import BearerHooks
from edge.client.connect_points import ConnectPoint
from edge.client.connecting import HOPS_MAX
from edge.client.limits import Limits
from edge.client.message import IncomingMessage
from edge.client.options import EXPIRY, Options, remaining_properties
from edge.client.outbox import Outbox
from edge.client.server_reference import sent_to
from edge.client.session_journal import SessionJournal, restore_session
from edge.client.store import Recovered, StoredMessage
from edge.errors import ConnectionLost, ConnectRefused, MqttClientError
from edge.hooks import Hooks
from edge.link import Address, QuicTls
from edge.mqtt_client import MqttClient
from mqtt.client_events import Closed
from mqtt.client_limits import ClientLimits
from mqtt.client_publish import check_publish
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Connack, Connect, Properties, Publish, Subscription
from schemas.identity import inbox_of

_log: Final = logging.getLogger("waystation.client")


class MqttBearer:
    """Implements :class:`edge.client.bearer_client.BearerClient`."""

    def __init__(self, options: Options, limits: Limits, outbox: Outbox, found: Recovered, hooks: BearerHooks) -> None:
        self._options, self._limits, self._outbox, self._hooks = options, limits, outbox, hooks
        self._tls, self._quic = options.tls, options.quic or QuicTls()
        found = _without_qos_0(outbox, found)
        session = restore_session(found, limits.window_messages, limits.window_bytes)
        self._journal = self.in_flight = SessionJournal(session, outbox, found)
        self._address: Address | None = None
        self._point: ConnectPoint | None = None
        self._sent_to: ConnectPoint | None = None  # by the gateway of the last connection
        self._hops = 0  # refusals in a row that have named another gateway
        self._follows = True
        self._has_inbox = False
        self._is_writable = True
        self._mqtt_limits = ClientLimits(
            limits.connect_timeout_s,
            limits.ping_timeout_s,
            max_packet_size=limits.packet_bytes,
            unread_answer_bytes=limits.unread_answer_bytes,
        )
        self._mqtt = MqttClient(
            self._current_address,
            self._connect_packet,
            session=session,
            limits=self._mqtt_limits,
            on_message=self._received,
            manual=True,
            hooks=Hooks(
                on_connected=self._connected,
                on_published=hooks.on_published,
                on_closed=self._closed,
                on_not_subscribed=self._not_subscribed,
                on_too_large=self._too_large,
                on_writable=self._writable,
            ),
            journal=self._journal.record,
        )
        self._mqtt.keeps_waiting = True

    # -- connections ---------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._mqtt.is_connected

    @property
    def connections(self) -> int:
        return self._mqtt.connections

    async def connect(self, point: ConnectPoint) -> None:
        """If a gateway cannot be reached to which another one has sent the client, or if it is sent on and on, it
        follows nobody until it is connected again: gateways then relay it."""
        self._point, self._address = point, self._address_of(point)
        if point != self._sent_to:
            self._sent_to = None
        try:
            await self._end_old_session(self._address)
            await self._mqtt.connect()
        except MqttClientError as error:
            to = sent_to(error.closed, point) if isinstance(error, ConnectRefused | ConnectionLost) else None
            self._hops = self._hops + 1 if to is not None else 0
            if self._hops > HOPS_MAX or (to is None and self._sent_to is not None):
                self._follows = False
            self._sent_to = to
            raise

    async def wait_closed(self) -> Closed:
        closed = await self._mqtt.wait_closed()
        self._sent_to = None if self._point is None else sent_to(closed, self._point)
        return closed

    async def disconnect(self, *, ends_session: bool) -> None:
        ends = ends_session and self._options.is_v5
        await self._mqtt.disconnect(properties={"session_expiry_interval": 0} if ends else None)

    def abort(self) -> None:
        self._mqtt.abort()

    def fail(self, error: Exception) -> None:
        self._mqtt.fail(error)

    async def network_changed(self) -> None:
        await self._mqtt.network_changed()

    # -- messages ------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return len(self._mqtt.session.outbound.messages)

    def has_capacity(self, payload_bytes: int) -> bool:
        """While the network is slower than the application, messages wait on disk, those of QoS 0 too."""
        return self._is_writable and self._mqtt.session.outbound.has_capacity(payload_bytes)

    def check(self, packet: Publish) -> None:
        refused = (packet.properties or {}).keys() - {EXPIRY}
        if not self._options.is_v5 and refused:
            raise LocalProtocolError(f"MQTT 3.1.1 cannot carry {', '.join(sorted(refused))}")
        check_publish(packet)

    def send(self, message: StoredMessage, properties: Properties | None) -> int:
        return self._mqtt.send(message.topic, message.payload, message.qos, message.retain, properties)

    def may_be_sent(self, packet_id: int) -> bool:
        return self._mqtt.session.outbound.messages[packet_id].dup

    def remove(self, packet_id: int) -> None:
        self._mqtt.session.outbound.remove(packet_id)

    def pause_reading(self, is_paused: bool) -> None:
        self._mqtt.pause_reading(is_paused)

    async def subscribe(self, *filters: str | Subscription, qos: int = 1) -> list[ReasonCode]:
        return await self._mqtt.subscribe(*filters, qos=qos)

    async def unsubscribe(self, *filters: str) -> None:
        await self._mqtt.unsubscribe(*filters)

    async def open_inbox(self) -> str:
        """A gateway of Waystation delivers to inboxes without a subscription; other servers do not."""
        inbox = inbox_of(self._options.client_id)
        if not self._has_inbox:
            await self.subscribe(inbox, qos=1)
            self._has_inbox = True
        return inbox

    # -- inside --------------------------------------------------------------------------------------------------------

    def _current_address(self) -> Address:
        assert self._address is not None
        return self._address

    def _connect_packet(self, _: int) -> Connect:
        """CONNECT. What is sent again after it has what remains of its lifetime by now, not when it was sent first."""
        session, now_s = self._mqtt.session, self._outbox.now_s
        for packet in session.outbound.messages.values():
            expires_s = self.in_flight.by_id[packet.packet_id].expires_s
            packet.properties = remaining_properties(packet.properties, expires_s - now_s)
        return self._options.connect(
            is_established=session.is_established,
            receive_maximum=self._limits.inbox_messages,
            packet_bytes=self._limits.packet_bytes,
            follows=self._follows,
        )

    def _address_of(self, point: ConnectPoint) -> Address:
        hostname = self._options.server_hostname
        if point.protocol == "quic":
            return Address(point.host, point.port, server_hostname=hostname, quic=self._quic)
        if point.uses_tls and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if point.uses_tls else None
        return Address(point.host, point.port, tls, hostname, point.path or None)

    async def _end_old_session(self, address: Address) -> None:
        """MQTT 3.1.1 has no clean start of a session that lasts: ends the server's session first."""
        if not self._options.is_v5 and not self._mqtt.session.is_established:
            clean = MqttClient(address, self._options.clean_connect(), limits=self._mqtt_limits)
            await clean.connect()
            await clean.disconnect()

    def _connected(self, connack: Connack) -> None:
        self._follows, self._hops, self._is_writable = True, 0, True
        self._outbox.resumed()
        self._hooks.on_connected()

    def _writable(self, is_writable: bool) -> None:
        self._is_writable = is_writable
        if is_writable:
            self._hooks.on_capacity()

    def _closed(self, closed: Closed) -> None:
        self._journal.record()
        self._hooks.on_closed()

    def _not_subscribed(self, error: Exception) -> None:
        """Everything else goes on, as when the gateway's access rules end a subscription of a session it has."""
        self._has_inbox = False
        _log.error("the gateway has lost the session, and a subscription has ended: %s", error)

    def _too_large(self, error: Exception) -> None:
        """With 3.1.1 only: a gateway of 5.0 knows the limit, and drops the message itself."""
        _log.error("%s; raise limits.packet_bytes to receive such messages", error)

    def _received(self, packet: Publish) -> None:
        self._hooks.on_message(IncomingMessage(packet, self._mqtt.acknowledge))


def _without_qos_0(outbox: Outbox, found: Recovered) -> Recovered:
    """Other bearers keep QoS 0 messages until they are acknowledged. MQTT does not know whether such a message was
    sent, and it must not be sent twice: removes it."""
    kept = []
    for message in found.in_flight:
        if message.qos:
            kept.append(message)
        else:
            outbox.remove(message.sequence, message.size, waiting=False)
    found.in_flight = kept
    return found
