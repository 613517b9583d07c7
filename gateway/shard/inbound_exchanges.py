"""QoS 2 messages of a client on their way in, from PUBLISH to PUBREL (MQTT 5.0, 4.3.3; G8). Pure: no clock, no I/O."""


class InboundExchanges:
    """`publishing` are packet ids of messages whose PUBREC is not due yet, `received` of those that Kafka has and that
    the client has not released; some are both. `stored_to` is the last offset on `ingress` that is known of;
    `is_dirty`: the session log does not have all that yet."""

    __slots__ = ("is_dirty", "publishing", "received", "stored_to")

    def __init__(self) -> None:
        self.publishing: set[int] = set()
        self.received: set[int] = set()
        self.stored_to = -1
        self.is_dirty = False

    def __bool__(self) -> bool:
        """Whether any is open."""
        return bool(self.publishing or self.received)

    def begin(self, packet_id: int) -> None:
        """PUBLISH: it goes to Kafka."""
        self.publishing.add(packet_id)

    def stored(self, packet_id: int, offset: int, *, to_log: bool) -> None:
        """Kafka has it at `offset`; `to_log`: the session log is to know. `confirmed` follows."""
        self.received.add(packet_id)
        self.stored_to = offset
        self.is_dirty = self.is_dirty or to_log

    def confirmed(self, packet_id: int) -> None:
        """PUBREC is due: what Kafka has counts."""
        self.publishing.discard(packet_id)

    def found(self, packet_id: int, offset: int) -> None:
        """A restart finds it on `ingress`."""
        if offset > self.stored_to:
            self.stored(packet_id, offset, to_log=True)

    def is_early(self, packet_id: int) -> bool:
        """Whether PUBREL comes before Kafka has the message."""
        return packet_id in self.publishing and packet_id not in self.received

    def refused(self, packet_id: int) -> None:
        """PUBREC says so."""
        self.publishing.discard(packet_id)
        self.received.discard(packet_id)

    def release(self, packet_id: int) -> bool:
        """PUBREL; whether it was open."""
        was_open = packet_id in self.received
        self.received.discard(packet_id)
        return was_open

    def written(self) -> None:
        """A record of the session log has all."""
        self.is_dirty = False

    def recover(self, received: list[int], stored_to: int) -> None:
        """Takes up what the session log has."""
        self.received, self.stored_to = set(received), stored_to
