"""A client's half of a session, which outlives its network connections (MQTT 5.0, 4.1).

It holds messages of QoS 1 and 2 that the server has not acknowledged, in order, and the packet ids of accepted QoS 2
messages. To let it outlive the process too, write :meth:`ClientSession.export` to disk **before** the bytes of
`outgoing()` are sent and before `publish` is reported as accepted. Then nothing accepted is lost, and no QoS 2 message
is sent or given to the application twice.
"""

from typing import Final

import msgspec

from mqtt.client_events import Published, SessionLost
from mqtt.client_inbound import InboundMessages
from mqtt.client_outbound import OutboundMessages
from mqtt.client_publish import check_publish
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Properties, Publish

QUEUE_MAX: Final = 10_000
QUEUE_BYTES_MAX: Final = 64 << 20


class SessionState(msgspec.Struct, array_like=True):
    """A session as values; `msgspec.msgpack` turns it into bytes and back (JSON would lose which properties are bytes).

    `messages` in their original order, with `dup` on those that may have been sent; `released` (packet id, reason code
    of PUBREC) in the order of PUBREC; `accepted`: packet ids of QoS 2 messages that wait for PUBREL; `open_ids`: as in
    :class:`mqtt.client_outbound.OutboundMessages`.
    """

    client_id: str
    is_established: bool
    last_id: int
    messages: list[Publish]
    released: list[tuple[int, int]]
    accepted: list[int]
    open_ids: list[int] = []


class ClientSession:
    """Keeps at most `queue_max` unacknowledged messages, with `queue_bytes_max` payload bytes together.

    `republish`: whether unacknowledged messages are sent again as new ones when the server has lost the session (the
    server may have had them: at least once, also at QoS 2); otherwise they are dropped. :class:`SessionLost` says
    which. `client_id` comes from the last CONNECT or was assigned by the server; a CONNECT without one uses it.
    `is_established`: a server has accepted a connection, so it has (or had) its half of this session.
    """

    __slots__ = ("_is_attached", "client_id", "inbound", "is_established", "outbound", "republish")

    def __init__(
        self,
        client_id: str = "",
        *,
        queue_max: int = QUEUE_MAX,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        republish: bool = True,
    ) -> None:
        self.client_id = client_id
        self.republish = republish
        self.outbound = OutboundMessages(queue_max, queue_bytes_max)
        self.inbound = InboundMessages()
        self.is_established = False
        self._is_attached = False

    @property
    def unacknowledged(self) -> list[Publish]:
        """Messages that the server has not finally acknowledged, in order; `dup` on those sent. Do not change them."""
        return list(self.outbound.messages.values())

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Takes a message of QoS 1 or 2 to send on the next connection; returns its packet id.

        While a connection is open, use :meth:`mqtt.client_connection.ClientConnection.publish`.
        Raises QueueFullError, LocalProtocolError (a message that MQTT does not allow).
        """
        packet = Publish(topic, payload, qos, retain, properties=properties)
        check_publish(packet)
        if not qos:
            raise LocalProtocolError("a QoS 0 message needs a connection: it is not kept for the next one")
        return self.outbound.add(packet)

    # -- on disk -------------------------------------------------------------------------------------------------------

    def export(self) -> SessionState:
        """The session as values; the module says when to store them. Messages given to the application and not
        acknowledged are not included: the server sends them again."""
        outbound = self.outbound
        return SessionState(
            self.client_id,
            self.is_established,
            outbound.last_id,
            self.unacknowledged,
            [(packet_id, int(reason)) for packet_id, reason in outbound.released.items()],
            self.inbound.accepted_ids(),
            list(outbound.open_ids),
        )

    @classmethod
    def restore(
        cls,
        state: SessionState,
        *,
        queue_max: int = QUEUE_MAX,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        republish: bool = True,
    ) -> "ClientSession":
        """An exported session, without a connection."""
        session = cls(state.client_id, queue_max=queue_max, queue_bytes_max=queue_bytes_max, republish=republish)
        session.is_established = state.is_established
        session.outbound.last_id = state.last_id
        for packet in state.messages:
            session.outbound.restore(msgspec.structs.replace(packet))
        session.outbound.released.update((packet_id, ReasonCode(reason)) for packet_id, reason in state.released)
        session.outbound.open_ids.update(dict.fromkeys(state.open_ids))
        session.inbound.received.update(state.accepted)
        return session

    # -- the connection's part -----------------------------------------------------------------------------------------

    def attach(self) -> None:
        """A connection begins; LocalProtocolError if another has not ended."""
        if self._is_attached:
            raise LocalProtocolError("the session has a connection: end it before you start the next one")
        self._is_attached = True

    def detach(self) -> None:
        """The connection has ended."""
        self._is_attached = False
        self.outbound.end()
        self.inbound.end()

    def resume(self, session_present: bool) -> list[Published | SessionLost]:
        """The server has accepted a connection; returns the events to report if it has lost the session."""
        was_established, self.is_established = self.is_established, True
        if session_present:
            return []
        outbound = self.outbound
        outbound.open_ids.clear()
        sent = [
            packet for packet in outbound.messages.values() if packet.dup and packet.packet_id not in outbound.released
        ]
        for packet in sent:
            packet.dup = False
            if not self.republish:
                outbound.remove(packet.packet_id)
        events: list[Published | SessionLost] = []
        unacknowledged = self.inbound.lose()
        if was_established:
            republished = [packet.packet_id for packet in sent] if self.republish else []
            events.append(SessionLost(republished, [] if self.republish else sent, unacknowledged))
        for packet_id, reason in list(outbound.released.items()):  # the server had these and has forwarded them
            outbound.remove(packet_id)
            events.append(Published(packet_id, reason))
        return events
