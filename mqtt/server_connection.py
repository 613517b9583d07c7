"""The server side of one network connection as a state machine; bytes and `now` in, events and bytes out.

States and transitions: :mod:`mqtt.server_state`.

Events are the packets themselves, in order, and finally one :class:`Closed`. Guarantees: the first event is Connect or
Closed; packets that arrive after CONNECT are held until `accept`, which returns them; no event follows Closed; a packet
that breaks the protocol is never an event. PINGREQ is answered here and is no event. DISCONNECT is an event, just
before Closed.
After each call, drain `outgoing()`; when `closed` is set, close the transport once those bytes are written.
"""

from dataclasses import replace
from typing import Final

from mqtt import codes
from mqtt.aliases import InboundAliases
from mqtt.client_rules import check_disconnect, connect_fault
from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.connection_state import ConnectionState
from mqtt.counters import TrafficCounters
from mqtt.decode import Decoder
from mqtt.encode import PINGRESP, encode
from mqtt.errors import LocalProtocolError, RemoteProtocolError
from mqtt.limits import RECEIVE_MAXIMUM_DEFAULT, ConnectionLimits, announcement
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    without_problem_information,
)
from mqtt.refusal import refusing
from mqtt.server_events import RECEIVABLE, SENDABLE, Closed, Event
from mqtt.server_state import State, Step, next_state
from mqtt.wire import HEADER_BYTES_MAX, packet_bytes, protocol_error

KEEP_ALIVE_FACTOR: Final = 1.5  # [MQTT-3.1.2-22]
_UNLIMITED: Final = 1 << 32
_CONNECTED: Final = State.CONNECTED  # a global name costs a fifth of an enum member access


class ServerConnection:
    """One network connection. Read-only: `state`, `connect` (its CONNECT), `closed` and `version`. Packets and bytes in
    both directions are added to `counters`, except PUBLISH packets sent as bytes: the caller counts those."""

    __slots__ = (
        "_aliases",
        "_counters",
        "_deadline_base",
        "_decoder",
        "_head",
        "_held",
        "_held_bytes",
        "_keep_alive_s",
        "_limits",
        "_out",
        "_peer_max_packet_size",
        "_receive_maximum",
        "_unanswered",
        "closed",
        "connect",
        "state",
    )

    def __init__(self, limits: ConnectionLimits, now: float, counters: TrafficCounters | None = None) -> None:
        self._limits = limits
        self._counters = counters or TrafficCounters()
        self._decoder = Decoder(limits.max_packet_size)
        self._deadline_base = now  # when the connection began; once connected, when the last packet arrived
        self._keep_alive_s = 0
        self._held: list[Packet] = []
        self._held_bytes = 0  # before CONNECT: all bytes received
        self._head = b""  # the first bytes of the stream, up to the longest fixed header
        self._out: list[bytes] = []
        self._aliases = InboundAliases(limits.topic_alias_maximum)
        self._receive_maximum = _UNLIMITED
        self._unanswered = 0
        self._peer_max_packet_size = _UNLIMITED
        self.state = State.AWAIT_CONNECT
        self.connect: Connect | None = None
        self.closed: Closed | None = None

    @classmethod
    def resumed(
        cls, state: ConnectionState, limits: ConnectionLimits, now: float, counters: TrafficCounters | None = None
    ) -> "ServerConnection":
        """Goes on where :meth:`export` has stopped; `limits` are those of this process for others. Give it
        `state.unread` before all that comes from the client."""
        own = {"max_packet_size": state.packet_bytes, "topic_alias_maximum": state.alias_maximum}
        connection = cls(replace(limits, **own), now - state.idle_s, counters)
        connection._decoder = Decoder(state.packet_bytes, state.version)
        connection._aliases = InboundAliases(state.alias_maximum, state.aliases)
        connection._keep_alive_s = state.keep_alive_s
        connection._peer_max_packet_size = state.client_packet_bytes
        connection._receive_maximum, connection._unanswered = state.receive_maximum, state.unanswered
        connection.connect, connection.state = state.connect, State.CONNECTED
        return connection

    def export(self, client: str, now: float) -> ConnectionState | None:
        """The state of the connection of `client`; None if it is not connected, or has bytes to write."""
        connect, limits = self.connect, self._limits
        if self.state is not _CONNECTED or connect is None or self._out or self._decoder.error:
            return None
        properties = connect.properties or {}
        return ConnectionState(
            5 if self.version == codes.VERSION_5 else 4,
            client,
            self._keep_alive_s,
            max(0.0, now - self._deadline_base),
            limits.max_packet_size,
            self._peer_max_packet_size,
            self._receive_maximum,
            self._unanswered,
            limits.topic_alias_maximum,
            self._aliases.topics,
            connect.will is not None,
            self._decoder.partial,
            properties.get("session_expiry_interval", 0),
            bool(properties.get("request_problem_information", 1)),
            list(properties.get("user_property", ())),
        )

    def heard(self, at: float) -> None:
        """The client's last packet came at this time: its keep alive runs from there."""
        self._deadline_base = at

    @property
    def version(self) -> int | None:
        """4 or 5; None before CONNECT."""
        return self._decoder.version

    # -- in ------------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """The events that `data` completes; `data` may be reused afterwards. Never raises for what the peer sent."""
        if self.state is not _CONNECTED:
            return self._receive_early(data)
        packets = self._feed(data)
        if packets:
            self._deadline_base = now
        return self._events(packets)

    def eof(self) -> list[Event]:
        """The transport has ended or broken."""
        if self.state is State.CLOSED:
            return []
        return [self._close(ReasonCode.UNSPECIFIED_ERROR, "the network connection ended")]

    def deadline(self) -> float | None:
        """When `tick` is due at the latest; None: never. Each packet postpones it: ask again when it has passed."""
        if self.state is State.AWAIT_CONNECT:
            return self._deadline_base + self._limits.connect_timeout_s
        if self.state is _CONNECTED and self._keep_alive_s:
            return self._deadline_base + KEEP_ALIVE_FACTOR * self._keep_alive_s
        return None

    def tick(self, now: float) -> list[Event]:
        """Ends the connection after its deadline: no CONNECT in time, no complete packet within 1.5 x keep alive."""
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return []
        if self.state is State.AWAIT_CONNECT:
            return [self._close(ReasonCode.UNSPECIFIED_ERROR, "no CONNECT arrived in time")]
        fault = RemoteProtocolError(ReasonCode.KEEP_ALIVE_TIMEOUT, f"no packet within 1.5 x {self._keep_alive_s} s")
        return [self._fail(fault)]

    # -- out -----------------------------------------------------------------------------------------------------------

    @property
    def is_flush_due(self) -> bool:
        """Whether there are bytes to write, or the connection has ended."""
        return bool(self._out) or self.closed is not None

    def outgoing(self) -> bytes:
        """The bytes to write, returned once; b"" if there are none."""
        data = b"".join(self._out)
        self._counters.packets_sent += len(self._out)
        self._counters.bytes_sent += len(data)
        self._out.clear()
        return data

    def drop_outgoing(self) -> None:
        """What `outgoing` would return is never sent: the connection ends."""
        self._out.clear()

    def accept(
        self,
        now: float,
        *,
        session_present: bool = False,
        assigned_client_id: str | None = None,
        properties: Properties | None = None,
    ) -> list[Event]:
        """Answers CONNECT with success; returns the events held since then.

        LocalProtocolError unless the state is CONNECTING: check `closed` first, because the client may have left
        meanwhile.
        On 5.0 CONNACK announces the limits; `properties` override them (`server_keep_alive` takes effect here too).
        `assigned_client_id` is required if a 5.0 client gave none [MQTT-3.2.2-16]; a 3.1.1 client does not learn it.
        """
        connect = self.connect
        if self.state is not State.CONNECTING or connect is None:
            raise LocalProtocolError(f"there is no CONNECT to accept in state {self.state.name}")
        if session_present and connect.clean_start:
            raise LocalProtocolError("session_present is not allowed after a clean start")  # [MQTT-3.2.2-2]
        self._keep_alive_s = connect.keep_alive
        answer = Connack(session_present)
        if connect.version == codes.VERSION_5:
            if not connect.client_id and not assigned_client_id:
                raise LocalProtocolError("a client without an identifier must be assigned one")
            answer.properties = announcement(self._limits, connect, assigned_client_id, properties)
            self._keep_alive_s = answer.properties.get("server_keep_alive", connect.keep_alive)
            self._receive_maximum = answer.properties.get("receive_maximum", RECEIVE_MAXIMUM_DEFAULT)
        self._deadline_base = now
        if not self._emit(answer):
            return [self._end(ReasonCode.PACKET_TOO_LARGE, "CONNACK is larger than the client accepts", None)]
        self._move(Step.ACCEPT)
        held, self._held = self._held, []
        return self._events(held)

    def refuse(self, reason: ReasonCode, properties: Properties | None = None) -> Closed:
        """Answers CONNECT with a failure and closes. 3.1.1 gets return code 3 if it has none for the reason."""
        if self.state is not State.CONNECTING:
            raise LocalProtocolError(f"there is no CONNECT to refuse in state {self.state.name}")
        if reason < ReasonCode.UNSPECIFIED_ERROR:
            raise LocalProtocolError(f"{reason.name} is not a reason to refuse a connection")
        return self._end(reason, f"refused: {reason.name}", properties)

    def send(self, packet: Packet | bytes, answers: int = 0) -> None:
        """Queues a packet for a connected client; does nothing on a closed connection.

        Bytes are complete, encoded packets; `answers` is how many inbound PUBLISH they finish (PUBACK, PUBCOMP). For a
        packet this is determined here. A PUBLISH must fit the client, see :meth:`fits`. Other packets are sent without
        the properties that do not fit or that the client declined [MQTT-3.1.2-29]; if a packet is still too large for
        the client, the connection ends and `closed` is set.
        """
        if self.state is not _CONNECTED:
            if self.state is State.CLOSED:
                return
            raise LocalProtocolError(f"nothing can be sent in state {self.state.name}")
        if isinstance(packet, bytes):
            self._out.append(packet)
        else:
            answers = self._send_packet(packet)
        if answers:  # never below 0, as the client counts (4.9)
            self._unanswered = left if (left := self._unanswered - answers) > 0 else 0

    def fits(self, n_bytes: int) -> bool:
        """Whether the client accepts a packet of this size; if not, drop it and count it as sent [MQTT-3.1.2-25]."""
        return n_bytes <= self._peer_max_packet_size

    def disconnect(self, reason: ReasonCode, properties: Properties | None = None, detail: str = "") -> Closed:
        """Ends the connection from this side: with DISCONNECT on 5.0; an unanswered CONNECT is refused."""
        if self.closed is not None:
            return self.closed
        return self._end(reason, detail or f"ended by the server: {reason.name}", properties)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _move(self, step: Step) -> None:
        """Changes the state; nothing else does."""
        self.state = next_state(self.state, step)

    def _feed(self, data: bytes | memoryview) -> list[Packet]:
        """The complete packets; an error after them stays in the decoder's `error`."""
        self._counters.bytes_received += len(data)
        try:
            packets = self._decoder.feed(data)
        except RemoteProtocolError:
            return []
        self._counters.packets_received += len(packets)
        return packets

    def _receive_early(self, data: bytes | memoryview) -> list[Event]:
        if self.state is State.CLOSED:
            return []
        packets = self._feed(data)
        self._held_bytes += len(data)
        events: list[Event] = []
        if self.state is State.AWAIT_CONNECT:
            self._head = (self._head + bytes(data[:HEADER_BYTES_MAX]))[:HEADER_BYTES_MAX]
            if not packets:
                return [self._fail(self._decoder.error)] if self._decoder.error is not None else []
            events.append(self._take_connect(packets.pop(0)))
            self._held_bytes -= packet_bytes(self._head)
        if self.state is State.CONNECTING:
            self._held += packets
            if self._held_bytes > self._limits.held_bytes_max:
                fault = RemoteProtocolError(ReasonCode.QUOTA_EXCEEDED, "too many bytes arrived before CONNACK")
                events.append(self._fail(fault))
        return events

    def _take_connect(self, packet: Packet) -> Event:
        if not isinstance(packet, Connect):
            return self._fail(protocol_error("the first packet is not CONNECT"))
        self._move(Step.RECEIVE_CONNECT)
        self.connect = packet
        self._peer_max_packet_size = (packet.properties or {}).get("maximum_packet_size", _UNLIMITED)
        fault = connect_fault(packet)
        return packet if fault is None else self._fail(fault)

    def _events(self, packets: list[Packet]) -> list[Event]:
        """The hot path: handles what a connected client sent."""
        events: list[Event] = []
        publishes = self._counters.publishes_received
        try:
            for packet in packets:
                if type(packet) is Publish:
                    publishes[packet.qos] += 1
                    if packet.qos:
                        self._unanswered += 1
                        if self._unanswered > self._receive_maximum:
                            detail = f"more than {self._receive_maximum} unacknowledged PUBLISH packets"
                            raise RemoteProtocolError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, detail)  # 3.3.4
                    if packet.properties is not None:
                        self._check_properties(packet, packet.properties)
                elif type(packet) is not Puback:
                    if type(packet) not in RECEIVABLE:
                        raise protocol_error(f"a client must not send {type(packet).__name__.upper()} here")
                    if type(packet) is Pingreq:
                        self._out.append(PINGRESP)  # [MQTT-3.12.4-1]
                        continue
                    if type(packet) is Disconnect:
                        check_disconnect(packet, self.connect)
                        events += (packet, self._close_by_client(packet))
                        return events
                events.append(packet)
            if self._decoder.error is not None:
                raise self._decoder.error
        except RemoteProtocolError as fault:
            events.append(self._fail(fault))
        return events

    def _check_properties(self, packet: Publish, properties: Properties) -> None:
        """Refuses what only servers send; replaces an alias by the full topic (3.3.2.3.4)."""
        if "subscription_identifier" in properties:
            raise protocol_error("a client must not send a subscription identifier")  # [MQTT-3.3.4-6]
        self._aliases.resolve(packet, properties)

    def _send_packet(self, packet: Packet) -> int:
        """Queues a packet; returns how many inbound PUBLISH it finishes."""
        kind = type(packet)
        if kind not in SENDABLE:
            raise LocalProtocolError(f"send() does not accept {kind.__name__}")
        asked = {} if self.connect is None else self.connect.properties or {}
        if kind is not Publish and not asked.get("request_problem_information", 1):
            packet = without_problem_information(packet)
        if not self._emit(packet):
            if kind is Publish:
                raise LocalProtocolError("a PUBLISH is larger than the client accepts: ask fits() first")
            self._end(ReasonCode.PACKET_TOO_LARGE, f"{kind.__name__} is larger than the client accepts", None)
            return 0
        if isinstance(packet, Pubrec):
            return int(packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR)
        return int(kind is Puback or kind is Pubcomp)

    def _emit(self, packet: Packet) -> bool:
        """Encodes and queues a packet; False if the client does not accept its size."""
        version = self._decoder.version or codes.VERSION_5
        data = encode(packet, version)
        if not self.fits(len(data)) and not isinstance(packet, Publish):
            data = encode(without_problem_information(packet), version)
        if not self.fits(len(data)):
            return False
        self._out.append(data)
        return True

    def _fail(self, fault: RemoteProtocolError) -> Closed:
        return self._end(fault.reason, fault.detail, {"reason_string": fault.detail})

    def _end(self, reason: ReasonCode, detail: str, properties: Properties | None) -> Closed:
        """Sends the reason, as far as state and version allow it (4.13), and closes."""
        version = self._decoder.version
        if self.state is _CONNECTED and version == codes.VERSION_5:
            known = reason in ALLOWED_REASONS[PacketType.DISCONNECT]
            self._emit(Disconnect(reason if known else ReasonCode.UNSPECIFIED_ERROR, properties))
        elif self.state in (State.AWAIT_CONNECT, State.CONNECTING) and version is not None:
            answer = refusing(version, reason, properties, is_well_formed=self.state is State.CONNECTING)
            if answer is not None:
                self._emit(answer)
        return self._close(reason, detail)

    def _close_by_client(self, packet: Disconnect) -> Closed:
        keeps_will = packet.reason_code != ReasonCode.NORMAL_DISCONNECTION  # [MQTT-3.14.4-3]
        detail = f"the client sent DISCONNECT with reason code 0x{packet.reason_code:02X}"
        return self._close(packet.reason_code, detail, clean=True, will_due=keeps_will)

    def _close(self, reason: ReasonCode, detail: str, *, clean: bool = False, will_due: bool = True) -> Closed:
        was_connected = self.state is _CONNECTED
        has_will = self.connect is not None and self.connect.will is not None
        self._move(Step.CLOSE)
        self._held = []
        self.closed = Closed(reason, detail, was_connected and has_will and will_due, clean)
        return self.closed
