"""A server's half of one session, over the server core: just enough to hold a client to the protocol.

It keeps what a server keeps on disk at once, so that a server that crashes is a server whose connection is lost.
Every message is stored or sent once its owner changes (MQTT 5.0, 4.3); what the client must not do is an assertion.
"""

from collections import deque

import msgspec

from mqtt.codes import ReasonCode
from mqtt.limits import ConnectionLimits
from mqtt.packets import (
    Connect,
    Packet,
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
from mqtt.server_connection import ServerConnection
from mqtt.server_events import Closed
from mqtt.server_state import State

_FAILURE = ReasonCode.UNSPECIFIED_ERROR


class ServerSession:
    """`stored` are the messages taken over, in order; `taken` the payloads that the client has acknowledged.

    `refuse` gives the reason code for a message, `refuse_filters` are those that SUBACK refuses; `connack` what CONNACK
    announces besides the limits.
    """

    def __init__(self, limits: ConnectionLimits, connack: Properties | None = None) -> None:
        self.limits, self.connack = limits, connack or {}
        self.connection: ServerConnection | None = None
        self.exists = False
        self.stored: list[Publish] = []
        self.taken: list[bytes] = []
        self.refuse: dict[bytes, ReasonCode] = {}
        self.refuse_filters: set[str] = set()
        self.connects: list[Connect] = []
        self.subscribes: list[Subscribe] = []
        self.ended: list[Closed] = []
        self._received: dict[int, bytes] = {}  # QoS 2 packet ids until PUBREL, with their payload
        self._queue: deque[Publish] = deque()
        self._in_flight: dict[int, Publish] = {}
        self._released: dict[int, None] = {}
        self._resend: deque[int] = deque()
        self._last_id = 0
        self._quota = 0

    @property
    def is_idle(self) -> bool:
        """Whether the client has acknowledged everything."""
        return not (self._queue or self._in_flight or self._released or self._received)

    def begin(self, now: float) -> None:
        """A new network connection."""
        self.connection = ServerConnection(self.limits, now)

    def forget(self) -> None:
        """The session is lost, with all that it held."""
        self.exists = False
        self._received.clear()
        self._queue.clear()
        self._in_flight.clear()
        self._released.clear()

    def deliver(self, topic: str, payload: bytes, qos: int, properties: Properties | None = None) -> None:
        """A message for the client."""
        self._queue.append(Publish(topic, payload, qos, properties=properties))
        self._pump()

    def receive(self, data: bytes, now: float) -> None:
        assert self.connection is not None
        for event in self.connection.receive(data, now):
            self._take(event, now)
        self._pump()

    def eof(self) -> None:
        if self.connection is not None:
            for event in self.connection.eof():
                self._take(event, 0.0)

    def _take(self, event: Packet | Closed, now: float) -> None:
        match event:
            case Connect():
                self._connected(event, now)
            case Publish():
                self._publish(event)
            case Pubrel():
                known = self._received.pop(event.packet_id, None) is not None
                self._send(Pubcomp(event.packet_id, _found(known)))
            case Puback() | Pubrec():
                self._acknowledged(event)
            case Pubcomp():
                if event.packet_id in self._released:
                    del self._released[event.packet_id]
                    self._quota += 1
            case Subscribe():
                self.subscribes.append(event)
                self._send(Suback(event.packet_id, [self._granted(wanted) for wanted in event.filters]))
            case Unsubscribe():
                self._send(Unsuback(event.packet_id, [ReasonCode.SUCCESS for _ in event.filters]))
            case Closed():
                self.ended.append(event)

    def _granted(self, wanted: Subscription) -> ReasonCode:
        return ReasonCode.NOT_AUTHORIZED if wanted.filter in self.refuse_filters else ReasonCode(wanted.qos)

    def _connected(self, connect: Connect, now: float) -> None:
        assert self.connection is not None
        self.connects.append(connect)
        if connect.clean_start:
            self.forget()
        present, self.exists = self.exists, True
        assigned = None if connect.client_id else "assigned"
        self.connection.accept(now, session_present=present, assigned_client_id=assigned, properties=self.connack)
        # A released message counts until its PUBCOMP, whichever connection its PUBLISH went out on (MQTT 5.0, 3.3.4).
        self._quota = (connect.properties or {}).get("receive_maximum", 65_535) - len(self._released)
        self._resend = deque(self._in_flight)
        for packet_id in self._released:
            self._send(Pubrel(packet_id))
        self._pump()

    def _publish(self, packet: Publish) -> None:
        assert packet.qos < 2 or packet.packet_id or not packet.dup
        if packet.qos == 2 and packet.packet_id in self._received:
            assert packet.dup, "a packet id in use without DUP [MQTT-3.3.1-1]"
            assert self._received[packet.packet_id] == packet.payload, "a packet id in use for another message"
        else:
            reason = self.refuse.get(packet.payload, ReasonCode.SUCCESS)
            if reason >= _FAILURE:
                self._send((Puback if packet.qos == 1 else Pubrec)(packet.packet_id, reason))
                return
            self.stored.append(packet)
            if packet.qos == 2:
                self._received[packet.packet_id] = packet.payload
        if packet.qos:
            self._send((Puback if packet.qos == 1 else Pubrec)(packet.packet_id))

    def _acknowledged(self, packet: Puback | Pubrec) -> None:
        if isinstance(packet, Pubrec) and packet.packet_id in self._released:
            self._send(Pubrel(packet.packet_id))
            return
        message = self._in_flight.pop(packet.packet_id, None)
        assert message is not None, f"{packet} for a packet id that is not in flight"
        assert packet.packet_id not in self._resend, f"{packet} for a message not sent on this connection"
        assert (message.qos == 1) is isinstance(packet, Puback)
        if packet.reason_code < _FAILURE:
            self.taken.append(message.payload)
        if isinstance(packet, Pubrec) and packet.reason_code < _FAILURE:
            self._released[packet.packet_id] = None
            self._send(Pubrel(packet.packet_id))
        else:
            self._quota += 1

    def _pump(self) -> None:
        """Sends what the client's receive maximum lets through; what was sent before in its order."""
        if self.connection is None or self.connection.state is not State.CONNECTED:
            return
        while self._quota > 0 and (self._resend or self._queue):
            if self._resend:
                packet = msgspec.structs.replace(self._in_flight[self._resend.popleft()], dup=True)
            else:
                packet = self._queue.popleft()
                if packet.qos:
                    packet.packet_id = self._new_id()
                    self._in_flight[packet.packet_id] = packet
            if packet.qos:
                self._quota -= 1
            self._send(packet)

    def _new_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self._in_flight and self._last_id not in self._released:
                return self._last_id

    def _send(self, packet: Packet) -> None:
        assert self.connection is not None
        self.connection.send(packet)


def _found(known: bool) -> ReasonCode:
    return ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
