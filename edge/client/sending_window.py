"""Messages that have a packet id, for bearers that have no MQTT session: numbers, and a bound."""

from collections.abc import Iterable

from edge.client.limits import Limits
from edge.client.store import StoredMessage
from mqtt.errors import QueueFullError
from mqtt.limits import PACKET_ID_MAX


class SendingWindow:
    """At most `limits.window_messages` and, unless it is one message, `limits.window_bytes`. No new message gets one of
    `open_ids`, the packet ids of open exchanges (:mod:`edge.client.store`)."""

    def __init__(self, limits: Limits, last_packet_id: int, open_ids: Iterable[int]) -> None:
        self._limits = limits
        self._open_ids = frozenset(open_ids)
        self._last_packet_id = last_packet_id
        self._messages: dict[int, StoredMessage] = {}
        self._sent: set[int] = set()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._messages

    def has_capacity(self, payload_bytes: int) -> bool:
        """An empty window takes any size."""
        if len(self._messages) >= min(self._limits.window_messages, PACKET_ID_MAX - len(self._open_ids)):
            return False
        return not self._messages or self._bytes + payload_bytes <= self._limits.window_bytes

    def restore(self, messages: Iterable[StoredMessage]) -> None:
        """Messages that an earlier process may have sent."""
        for message in messages:
            self._hold(message.packet_id, message)
            self._sent.add(message.packet_id)

    def add(self, message: StoredMessage) -> int:
        """Takes a new message; its packet id. Raises QueueFullError."""
        if not self.has_capacity(len(message.payload)):
            raise QueueFullError(f"{len(self._messages)} messages are unacknowledged: publish again later")
        packet_id = self._last_packet_id
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if packet_id not in self._messages and packet_id not in self._open_ids:
                break
        self._last_packet_id = packet_id
        self._hold(packet_id, message)
        return packet_id

    def sent(self, packet_id: int) -> StoredMessage:
        """The message, which is about to be sent."""
        self._sent.add(packet_id)
        return self._messages[packet_id]

    def may_be_sent(self, packet_id: int) -> bool:
        """Whether it may have been sent."""
        return packet_id in self._sent

    def remove(self, packet_id: int) -> StoredMessage:
        """Forgets a message; returns it."""
        message = self._messages.pop(packet_id)
        self._sent.discard(packet_id)
        self._bytes -= len(message.payload)
        return message

    def in_order(self) -> list[int]:
        """All packet ids, the oldest message first."""
        return sorted(self._messages, key=lambda packet_id: self._messages[packet_id].sequence)

    def _hold(self, packet_id: int, message: StoredMessage) -> None:
        self._messages[packet_id] = message
        self._bytes += len(message.payload)
