"""The client side of one network connection as a state machine; bytes and `now` in, events and bytes out.

States and transitions: :mod:`mqtt.client_state`. What outlives the connection: :mod:`mqtt.client_session`.

Order of events: the first is Connack (the server accepted) or :class:`Closed`. Closed is always the last. In between:
Publish (a message for the application), :class:`Published` (the exchange of an outbound message has ended), Suback,
Unsuback, :class:`SessionLost` (right after Connack), Disconnect (from the server, just before Closed), LargePublish (a
message of a server of 3.1.1 that is too large; acknowledge it too, or the server sends it again on each connection). A
packet that breaks the protocol is never an event. PUBREC with success, PUBREL, PUBCOMP and pings are answered here.

Delivery to the application: QoS 1 at least once, QoS 2 exactly once. **Nothing is acknowledged automatically**: PUBACK
and PUBREC are sent when the application calls :meth:`ClientConnection.acknowledge` with the Publish it was given.
After each call, write `outgoing()`; when `closed` is set, close the transport afterwards. There is no AUTH (4.12) here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mqtt import codes
from mqtt.aliases import InboundAliases
from mqtt.client_end import check_answer, disconnected, refused, return_code
from mqtt.client_events import Closed, EndedBy, Event, Published
from mqtt.client_keep_alive import Due, KeepAlive
from mqtt.client_limits import NO_LIMITS, ClientLimits, ServerLimits, check_filters, check_subscriptions, in_flight_max
from mqtt.client_publish import PublishEncoder, check_publish, check_reason
from mqtt.client_session import ClientSession
from mqtt.client_state import State, Step, next_state
from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import PINGREQ, encode, encode_puback, encode_pubcomp, encode_pubrec, encode_pubrel
from mqtt.errors import LocalProtocolError, RemoteProtocolError
from mqtt.limits import RECEIVE_MAXIMUM_DEFAULT
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    LargePublish,
    Packet,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from mqtt.wire import protocol_error

_CONNECTED: Final = State.CONNECTED
_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR
_NOT_FOUND: Final = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
_SUCCESS: Final = ReasonCode.SUCCESS


class ClientConnection:
    """One network connection of `session`, which has no other. It begins by sending `connect`. Read-only: `state`,
    `connect`, `server` (what the server accepts, once connected), `answered` (bytes of answers to it so far) and
    `closed`. `observe` is called with each packet received, before it is handled: for tests and traces. Times are
    seconds of any monotonic clock."""

    __slots__ = (
        *("_aliases", "_decoder", "_encoder", "_head", "_keep_alive", "_limits", "_observe", "_out"),
        *("_receive_maximum", "_unanswered", "answered", "closed", "connect", "server", "session", "state"),
    )

    def __init__(
        self,
        session: ClientSession,
        connect: Connect,
        limits: ClientLimits,
        now: float,
        observe: Callable[[Packet], None] | None = None,
    ) -> None:
        if connect.version not in (codes.VERSION_3_1_1, codes.VERSION_5):
            raise LocalProtocolError(f"MQTT version {connect.version} is not supported: use 4 (3.1.1) or 5 (5.0)")
        if not connect.client_id and session.client_id:
            connect = msgspec.structs.replace(connect, client_id=session.client_id)
        properties = connect.properties or {}
        if "authentication_method" in properties:
            raise LocalProtocolError("enhanced authentication is not supported")
        self._out = [encode(connect, connect.version)]
        session.attach()
        self.session, self.connect, self._limits, self._observe = session, connect, limits, observe
        self.server = NO_LIMITS
        is_v5 = connect.version == codes.VERSION_5
        most = properties.get("maximum_packet_size", limits.max_packet_size)
        self._decoder = Decoder(most, connect.version, skips_large=not is_v5)
        self._encoder = PublishEncoder(connect.version, 0)
        self._aliases = InboundAliases(properties.get("topic_alias_maximum", 0))
        self._receive_maximum = properties.get("receive_maximum", RECEIVE_MAXIMUM_DEFAULT) if is_v5 else 65_535
        self._unanswered = 0  # inbound messages of QoS 1 and 2, counted as the server does (4.9)
        self.answered = 0
        self._head = b""  # of the bytes before CONNACK
        self._keep_alive = KeepAlive(limits.connect_timeout_s, now)
        self.state = State.AWAIT_CONNACK
        self.closed: Closed | None = None

    # -- in ------------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """The events that `data` completes; `data` may be reused afterwards. Empty `data` is a sign of life too: the
        server has taken some of what waited for it. Never raises for what the server sent."""
        if self.state is State.CLOSED:
            return []
        self._keep_alive.received(now)
        if self.state is State.AWAIT_CONNACK:
            self._head = (self._head + bytes(data[:4]))[:4]
        events: list[Event] = []
        try:
            packets = self._decoder.feed(data)
            self._take(packets, events, now)
            if self._decoder.error is not None and self.closed is None:
                raise self._decoder.error
        except RemoteProtocolError as fault:
            events.append(self._fail(fault))
        return events

    def eof(self, why: str = "") -> list[Event]:
        """The transport has ended or broken; `why`, if that is known."""
        detail = "the network connection ended" + (f": {why}" if why else "")
        return [] if self.state is State.CLOSED else [self._close(Closed(_FAILURE, detail, EndedBy.TRANSPORT))]

    def deadline(self) -> float | None:
        """When `tick` is due at the latest; None: never. It may be postponed: ask again when it has passed."""
        return None if self.state is State.CLOSED else self._keep_alive.deadline()

    def tick(self, now: float) -> list[Event]:
        """Sends PINGREQ when due; ends the connection if CONNACK or PINGRESP is overdue."""
        due = None if self.state is State.CLOSED else self._keep_alive.due(now)
        if due is Due.OVERDUE and self.state is State.AWAIT_CONNACK:
            detail = f"the server did not answer CONNECT within {self._limits.connect_timeout_s:g} s"
            return [self._close(Closed(_FAILURE, detail, EndedBy.TIMEOUT))]
        if due is Due.OVERDUE:
            detail = f"the server did not answer a ping within {self._limits.ping_timeout_s:g} s"
            return [self._end(ReasonCode.KEEP_ALIVE_TIMEOUT, detail, EndedBy.TIMEOUT)]
        if due is Due.PING:
            self._out.append(PINGREQ)
        return []

    def unread(self, answer_bytes: int) -> list[Event]:
        """So many bytes of answers wait for the server: ends the connection if these are too many."""
        if self.state is State.CLOSED or answer_bytes <= self._limits.unread_answer_bytes:
            return []
        detail = f"the server does not read: {answer_bytes:,} bytes of answers wait for it"
        return [self._end(ReasonCode.QUOTA_EXCEEDED, detail, EndedBy.FAULT)]

    # -- out -----------------------------------------------------------------------------------------------------------

    def outgoing(self) -> bytes:
        """The bytes to write, returned once; b"" if there are none."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Sends a message, or queues it until the server accepts more; returns its packet id, 0 at QoS 0.

        At QoS 1 and 2 :class:`Published` follows, on this or a later connection. Before CONNACK and after the end,
        messages of QoS 1 and 2 are queued in the session.
        Raises LocalProtocolError (not allowed by MQTT; QoS 0 without a connection), ServerLimitError, QueueFullError.
        """
        packet = Publish(topic, payload, qos, retain, properties=properties)
        check_publish(packet)
        is_connected = self.state is _CONNECTED
        if is_connected and self.server is not NO_LIMITS:
            self.server.check_publish(packet, self._encoder.size(packet))
        if qos:
            packet_id = self.session.outbound.add(packet)
            if is_connected:
                self._pump()
            return packet_id
        if not is_connected:
            raise LocalProtocolError(f"a QoS 0 message needs a connection, but its state is {self.state.name}")
        self._out.append(self._encoder.encode(packet))
        return 0

    def acknowledge(self, packet: Publish, reason: ReasonCode = _SUCCESS) -> None:
        """The application has accepted a message it was given: sends PUBACK or PUBREC, after those of earlier messages.
        A `reason` of 0x80 and above refuses it (5.0 only). Does nothing at QoS 0, or if the message's session is lost.
        After the end of the connection, the acknowledgement is kept until the server sends the message again."""
        if not packet.qos:
            return
        if reason is not _SUCCESS:
            check_reason(reason, self.connect.version)
        self._answer(self.session.inbound.acknowledge(packet, reason))

    def forget(self, packet: Publish) -> None:
        """The application has lost a message it was given and did not acknowledge: it gets the message again when the
        server sends it again, on the next connection."""
        self.session.inbound.forget(packet)

    def subscribe(self, filters: Sequence[Subscription], properties: Properties | None = None) -> int:
        """Sends SUBSCRIBE; returns the packet id that its Suback will have. If the connection ends, no answer follows.

        Raises LocalProtocolError (not connected, not well formed), ServerLimitError, QueueFullError.
        """
        wanted, is_v5 = list(filters), self.connect.version == codes.VERSION_5
        check_subscriptions(wanted, is_v5)
        if is_v5:
            self.server.check_subscribe(wanted, bool((properties or {}).get("subscription_identifier")))
        return self._request(lambda packet_id: Subscribe(packet_id, wanted, properties))

    def unsubscribe(self, filters: Sequence[str], properties: Properties | None = None) -> int:
        """Sends UNSUBSCRIBE; returns the packet id that its Unsuback will have. Raises as :meth:`subscribe`."""
        check_filters(filters, self.connect.version == codes.VERSION_5)
        return self._request(lambda packet_id: Unsubscribe(packet_id, list(filters), properties))

    def disconnect(
        self, reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION, properties: Properties | None = None
    ) -> Closed:
        """Ends the connection with DISCONNECT; with DISCONNECT_WITH_WILL_MESSAGE the server publishes the will."""
        if self.closed is not None:
            return self.closed
        before = (self.connect.properties or {}).get("session_expiry_interval", 0)
        if not before and (properties or {}).get("session_expiry_interval", 0):
            raise LocalProtocolError("the session expiry interval was 0 and cannot be set by DISCONNECT")  # 3.14.2.2.2
        if self.state is _CONNECTED:
            self._out.append(encode(Disconnect(reason, properties), self.connect.version))
        return self._close(Closed(reason, "ended by this client", EndedBy.CLIENT))

    # -- inside: receiving ---------------------------------------------------------------------------------------------

    def _take(self, packets: list[Packet], events: list[Event], now: float) -> None:
        """The hot path: handles what the server sent."""
        for packet in packets:
            if self._observe is not None:
                self._observe(packet)
            kind = type(packet)
            if self.state is not _CONNECTED:
                if self.state is State.CLOSED:
                    return
                self._connack(packet, events, now)
            elif kind is Publish:
                self._take_publish(packet, events)  # type: ignore[arg-type]
            else:
                handler = _HANDLERS.get(kind)
                if handler is None:
                    raise protocol_error(f"a server must not send {kind.__name__.upper()} here")
                handler(self, packet, events)

    def _take_publish(self, packet: Publish, events: list[Event]) -> None:
        if packet.properties is not None:
            self._aliases.resolve(packet, packet.properties)
        if packet.qos:
            self._unanswered += 1
            if self._unanswered > self._receive_maximum:
                detail = f"more than {self._receive_maximum} unacknowledged PUBLISH packets"
                raise RemoteProtocolError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, detail)  # [MQTT-3.3.4-9]
            is_new, answers = self.session.inbound.take(packet)
            self._answer(answers)
            if not is_new:
                return
        events.append(packet)

    def _connack(self, packet: Packet, events: list[Event], now: float) -> None:
        if type(packet) is not Connack:
            raise protocol_error("the first packet is not CONNACK")  # [MQTT-3.2.0-1]
        if packet.reason_code:
            events.append(self._close(refused(packet.reason_code, packet.properties)))
            return
        if packet.session_present and self.connect.clean_start:
            raise protocol_error("the server reports a session after a clean start")  # [MQTT-3.2.2-2]
        self.state = next_state(self.state, Step.RECEIVE_CONNACK)
        properties = packet.properties or {}
        session, limits = self.session, self._limits
        session.client_id = properties.get("assigned_client_identifier", self.connect.client_id)
        if properties:
            self.server = ServerLimits.of(packet)
        self._encoder = PublishEncoder(
            self.connect.version, min(limits.topic_aliases_max, self.server.topic_alias_maximum)
        )
        keep_alive_s = properties.get("server_keep_alive", self.connect.keep_alive)
        self._keep_alive.connected(keep_alive_s, limits.ping_timeout_s, now)
        events.append(packet)
        events += session.resume(packet.session_present)
        events += session.outbound.without_refused(
            lambda waiting: self.server.check_publish(waiting, self._encoder.size(waiting))
        )
        quota = in_flight_max(limits, self.server, self.connect.version)
        self._out += map(encode_pubrel, session.outbound.begin(quota))
        self._pump()

    def _take_answer(self, packet: Puback | Pubrec, events: list[Event]) -> None:
        outbound, packet_id = self.session.outbound, packet.packet_id
        if outbound.acknowledged(packet):
            events.append(Published(packet_id, packet.reason_code, packet.properties))
            self._pump()
        elif packet.reason_code < _FAILURE:
            if outbound.is_known(packet_id):
                self._reply(encode_pubrel(packet_id))
            else:
                self._reply(encode(Pubrel(packet_id, _NOT_FOUND), self.connect.version))

    def _take_pubcomp(self, packet: Pubcomp, events: list[Event]) -> None:
        reason = self.session.outbound.completed(packet)
        if reason is not None:
            events.append(Published(packet.packet_id, reason, packet.properties))
            self._pump()

    def _take_pubrel(self, packet: Pubrel, events: list[Event]) -> None:
        self._unanswered = max(0, self._unanswered - 1)
        if self.session.inbound.released(packet.packet_id):
            self._reply(encode_pubcomp(packet.packet_id))
        else:
            self._reply(encode(Pubcomp(packet.packet_id, _NOT_FOUND), self.connect.version))

    def _take_suback(self, packet: Suback | Unsuback, events: list[Event]) -> None:
        request = self.session.outbound.requests.pop(packet.packet_id, None)
        check_answer(packet, request, self.connect.version == codes.VERSION_5)
        events.append(packet)

    def _take_pingresp(self, packet: Pingresp, events: list[Event]) -> None:
        self._keep_alive.answered()

    def _take_disconnect(self, packet: Disconnect, events: list[Event]) -> None:
        if self.connect.version != codes.VERSION_5:
            raise protocol_error("a server of MQTT 3.1.1 must not send DISCONNECT")
        events += (packet, self._close(disconnected(packet)))

    # -- inside: sending -----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Sends queued messages, as many as the server accepts now (4.9)."""
        outbound = self.session.outbound
        while (packet := outbound.next_to_send()) is not None:
            self._out.append(self._encoder.encode(packet))
            packet.dup = True  # later sends are retransmissions

    def _answer(self, answers: list[Puback | Pubrec]) -> None:
        for answer in answers:
            is_puback, reason = type(answer) is Puback, answer.reason_code
            if reason is _SUCCESS:
                self._reply((encode_puback if is_puback else encode_pubrec)(answer.packet_id))
            else:
                self._reply(encode(answer, self.connect.version))
            if is_puback or reason >= _FAILURE:
                self._unanswered = max(0, self._unanswered - 1)

    def _reply(self, data: bytes) -> None:
        self._out.append(data)
        self.answered += len(data)

    def _request(self, packet: Callable[[int], Subscribe | Unsubscribe]) -> int:
        if self.state is not _CONNECTED:
            raise LocalProtocolError(f"no request can be sent in state {self.state.name}")
        outbound = self.session.outbound
        request = packet(outbound.new_id())
        data = encode(request, self.connect.version)
        self.server.check_size(len(data))
        outbound.requests[request.packet_id] = request
        self._out.append(data)
        return request.packet_id

    # -- inside: the end -----------------------------------------------------------------------------------------------

    def _fail(self, fault: RemoteProtocolError) -> Closed:
        if self.state is State.AWAIT_CONNACK and (code := return_code(self._head)) is not None:
            return self._close(refused(code, None))
        return self._end(fault.reason, f"the server violated the protocol: {fault.detail}", EndedBy.FAULT)

    def _end(self, reason: ReasonCode, detail: str, by: EndedBy) -> Closed:
        """Sends the reason, as far as state and version allow it (4.13), and closes."""
        if self.state is _CONNECTED and self.connect.version == codes.VERSION_5:
            known = reason in ALLOWED_REASONS[PacketType.DISCONNECT]
            self._out.append(encode(Disconnect(reason if known else _FAILURE), codes.VERSION_5))
        return self._close(Closed(reason, detail, by))

    def _close(self, closed: Closed) -> Closed:
        self.state = next_state(self.state, Step.CLOSE)
        self.session.detach()
        self.closed = closed
        return closed


_HANDLERS: Final[Mapping[type, Callable[[ClientConnection, Any, list[Event]], None]]] = {
    LargePublish: ClientConnection._take_publish,
    Puback: ClientConnection._take_answer,
    Pubrec: ClientConnection._take_answer,
    Pubrel: ClientConnection._take_pubrel,
    Pubcomp: ClientConnection._take_pubcomp,
    Suback: ClientConnection._take_suback,
    Unsuback: ClientConnection._take_suback,
    Pingresp: ClientConnection._take_pingresp,
    Disconnect: ClientConnection._take_disconnect,
}
