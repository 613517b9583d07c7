"""The sending half of a client's session: QoS 1 and 2 messages until the server has them, and packet ids.

A message waits, is sent, and is forgotten after its last acknowledgement. When a connection ends, everything sent and
not acknowledged must be sent again, in the original order (MQTT 5.0, 4.4 and 4.6).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from mqtt.client_events import Published
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError, QueueFullError, ServerLimitError
from mqtt.limits import PACKET_ID_MAX
from mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Subscribe, Unsubscribe
from mqtt.wire import protocol_error

_REQUESTS_RESERVED: Final = 1_000  # packet ids reserved for SUBSCRIBE and UNSUBSCRIBE
MESSAGES_MAX: Final = PACKET_ID_MAX - _REQUESTS_RESERVED
_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR


class OutboundMessages:
    """Holds at most `messages_max` (64,535 or less) unacknowledged messages, with `bytes_max` payload bytes together.

    The `dup` flag of a message says whether it was sent before. `released` are messages whose PUBREC has arrived, with
    its reason code, in the order of PUBREC: PUBREL is sent in that order [MQTT-4.6.0-4].

    `open_ids` are packet ids whose QoS 2 message has ended otherwise than by MQTT, and which the server may hold as
    received. PUBREL is sent for them, and none is used again before PUBCOMP, which is reported as for a message.
    """

    __slots__ = ("_bytes", "_in_flight", "_resumed", "_waiting", "bytes_max", "last_id", "messages", "messages_max",
                 "open_ids", "quota", "quota_max", "released", "requests")  # fmt: skip

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        if not 0 < messages_max <= MESSAGES_MAX:
            raise LocalProtocolError(f"messages_max must be from 1 to {MESSAGES_MAX}, not {messages_max}")
        self.messages_max, self.bytes_max = messages_max, bytes_max
        self.messages: dict[int, Publish] = {}
        self.released: dict[int, ReasonCode] = {}
        self.open_ids: dict[int, None] = {}
        self.requests: dict[int, Subscribe | Unsubscribe] = {}
        self.last_id = 0
        self.quota = self.quota_max = 0  # messages that may be sent now, and on a new connection (4.9)
        self._bytes = 0
        self._waiting: deque[int] = deque()
        self._in_flight: set[int] = set()  # sent on this connection, PUBACK or PUBREC not received
        self._resumed: set[int] = set()  # PUBREL sent on this connection for a PUBREC of an earlier one

    # -- the application's part ----------------------------------------------------------------------------------------

    def has_capacity(self, n_bytes: int) -> bool:
        """Whether a message of this payload size can be added; an empty queue accepts any size."""
        if len(self.messages) >= min(self.messages_max, MESSAGES_MAX - len(self.open_ids)):
            return False
        return not self.messages or self._bytes + n_bytes <= self.bytes_max

    def add(self, packet: Publish) -> int:
        """Takes a checked message of QoS 1 or 2; returns its packet id. Raises QueueFullError."""
        if not self.has_capacity(len(packet.payload)):
            detail = f"{len(self.messages)} messages of {self._bytes} bytes are unacknowledged: publish again later"
            raise QueueFullError(detail)
        packet.packet_id = self.new_id()
        self.restore(packet)
        self._waiting.append(packet.packet_id)
        return packet.packet_id

    def restore(self, packet: Publish) -> None:
        """Adds a message that already has its packet id."""
        self.messages[packet.packet_id] = packet
        self._bytes += len(packet.payload)

    def remove(self, packet_id: int) -> Publish:
        """Forgets a message, whatever the state of its exchange, and frees its packet id."""
        packet = self.messages.pop(packet_id)
        self._bytes -= len(packet.payload)
        self.released.pop(packet_id, None)
        self._in_flight.discard(packet_id)
        return packet

    def new_id(self) -> int:
        """An unused packet id [MQTT-2.2.1-3]; QueueFullError if all are in use."""
        if len(self.messages) + len(self.requests) + len(self.open_ids) >= PACKET_ID_MAX:
            raise QueueFullError("all packet identifiers are in use: wait for an answer")
        packet_id = self.last_id
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if not (packet_id in self.messages or packet_id in self.requests or packet_id in self.open_ids):
                self.last_id = packet_id
                return packet_id

    def without_refused(self, check: Callable[[Publish], None]) -> list[Published]:
        """Forgets the messages for which `check` raises ServerLimitError; returns how each of them ended. The server
        may hold those of QoS 2 that were sent on an earlier connection."""
        refused: list[Published] = []
        for packet in list(self.messages.values()):
            try:
                if packet.packet_id not in self.released:
                    check(packet)
            except ServerLimitError as error:
                self.remove(packet.packet_id)
                if packet.dup and packet.qos == 2:
                    self.open_ids[packet.packet_id] = None
                refused.append(Published(packet.packet_id, error.reason, {"reason_string": error.detail}))
        return refused

    # -- one connection ------------------------------------------------------------------------------------------------

    def begin(self, quota: int) -> list[int]:
        """A connection is accepted; `quota` messages may be sent on it. Returns the packet ids to send PUBREL for."""
        self.quota = self.quota_max = quota
        self._resumed = set(self.released)
        self._waiting = deque(packet_id for packet_id in self.messages if packet_id not in self.released)
        return [*self.open_ids, *self.released]

    def end(self) -> None:
        """The connection has ended: open SUBSCRIBE and UNSUBSCRIBE requests will not be answered."""
        self.quota = 0
        self._in_flight.clear()
        self.requests.clear()

    def next_to_send(self) -> Publish | None:
        """The next message to send; None if none waits or the server accepts no more now. It counts as sent: call
        :meth:`mark_sent` once it is encoded."""
        while self.quota and self._waiting:
            packet = self.messages.get(self._waiting.popleft())
            if packet is not None:
                self.quota -= 1
                self._in_flight.add(packet.packet_id)
                return packet
        return None

    def acknowledged(self, packet: Puback | Pubrec) -> bool:
        """PUBACK or PUBREC has arrived: True if the exchange has ended, False if PUBREL must be sent.

        RemoteProtocolError if it answers no message sent on this connection. A PUBREC for an unused packet id is
        answered with PUBREL, too (4.3.3): ask :meth:`is_known` for the reason code.
        """
        packet_id, is_puback = packet.packet_id, type(packet) is Puback
        if packet_id not in self._in_flight:
            if is_puback or (packet_id in self.messages and packet_id not in self.released):
                raise protocol_error(f"unexpected {type(packet).__name__.upper()} for packet id {packet_id}")
            return False
        if (self.messages[packet_id].qos == 1) is not is_puback:
            raise protocol_error(f"{type(packet).__name__.upper()} for packet id {packet_id}, which has another QoS")
        if is_puback or packet.reason_code >= _FAILURE:
            self.remove(packet_id)
            self._answered()
            return True
        self._in_flight.remove(packet_id)
        self.released[packet_id] = packet.reason_code
        return False

    def is_known(self, packet_id: int) -> bool:
        """Whether the packet id is in use for a message, or was and is not released."""
        return packet_id in self.messages or packet_id in self.open_ids

    def completed(self, packet: Pubcomp) -> ReasonCode | None:
        """PUBCOMP has arrived; returns the reason code of PUBREC, or None (no error) for an unknown packet id."""
        packet_id = packet.packet_id
        if packet_id in self.open_ids:
            del self.open_ids[packet_id]
            return ReasonCode.SUCCESS
        reason = self.released.get(packet_id)
        if reason is None:
            if packet_id in self.messages:
                raise protocol_error(f"PUBCOMP for packet id {packet_id} before its PUBREC")
            return None
        self.remove(packet_id)
        if packet_id in self._resumed:
            # It took nothing of this connection's quota. The specification would give some back (4.9), but mosquitto
            # 2.0 counts what is stored, and refuses one message more with 0x97.
            self._resumed.discard(packet_id)
        else:
            self._answered()
        return reason

    def _answered(self) -> None:
        if self.quota < self.quota_max:  # never above the initial value (4.9)
            self.quota += 1
