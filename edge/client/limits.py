"""The client library's limits, with their defaults (M2). docs/client.md says what happens beyond each."""

from dataclasses import dataclass
from typing import Final

from edge.client.errors import LifetimeNotAllowed, MessageTooLarge, StoreFull
from edge.client.store_clock import DOWN_MOST_S
from mqtt.client_limits import PACKET_SIZE_MAX, UNREAD_ANSWER_BYTES
from mqtt.client_outbound import MESSAGES_MAX
from mqtt.limits import RECEIVE_MAXIMUM_DEFAULT

PACKET_BYTES_MIN: Final = 4_096  # CONNACK and SUBACK must fit
DAY_S: Final = 86_400.0


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes count topic, payload and properties."""

    messages: int = 100_000  # in the outbox
    total_bytes: int = 256 << 20  # in the outbox
    message_bytes: int = 1_000_000  # of one message
    lifetime_s: float = 7 * DAY_S  # how long a message is kept that is not sent
    down_most_s: float = DOWN_MOST_S  # by how much messages age at most while no process runs
    window_messages: int = 1_000  # of the outbox in memory: sent, or about to be
    window_bytes: int = 8 << 20
    inbox_messages: int = 1_000  # received and not acknowledged by the application
    packet_bytes: int = (16 << 20) + (64 << 10)  # over MQTT: of a packet from the gateway, above its own largest limit
    unread_answer_bytes: int = UNREAD_ANSWER_BYTES  # over MQTT: of answers that the gateway has not read
    requests: int = 1_000  # that wait for a reply
    http_connections: int = 8  # over HTTP: requests at a time, beside the stream
    answer_timeout_s: float = 30.0  # over HTTP for an answer, once all is taken; for Kafka until it has one
    connect_timeout_s: float = 10.0  # for an access point's answer, a network connection, and the gateway's CONNACK
    ping_timeout_s: float = 20.0  # for the answer to a ping, if nothing arrives and nothing is taken; then it is broken

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"limits.{name} must be above 0, not {value}")
        if self.window_messages > MESSAGES_MAX:
            raise ValueError(f"limits.window_messages must be {MESSAGES_MAX} at most, not {self.window_messages}")
        if not PACKET_BYTES_MIN <= self.packet_bytes <= PACKET_SIZE_MAX:
            raise ValueError(f"limits.packet_bytes must be from {PACKET_BYTES_MIN} to {PACKET_SIZE_MAX}")
        if self.inbox_messages > RECEIVE_MAXIMUM_DEFAULT:
            raise ValueError(f"limits.inbox_messages must be {RECEIVE_MAXIMUM_DEFAULT} at most")

    def check(self, messages: int, total_bytes: int, size: int) -> None:
        """Whether an outbox with these contents takes a message of `size`. Raises MessageTooLarge, StoreFull."""
        if size > self.message_bytes:
            raise MessageTooLarge(f"the message has {size:,} bytes, and {self.message_bytes:,} are allowed")
        if messages >= self.messages:
            raise StoreFull(f"the outbox is full: {messages:,} messages wait for the gateway; publish again later")
        if total_bytes + size > self.total_bytes:
            raise StoreFull(
                f"the outbox is full: {total_bytes:,} of {self.total_bytes:,} bytes are in use, and the message needs "
                f"{size:,}; publish again later"
            )

    def lifetime(self, wanted_s: float | None) -> float:
        """How long to keep a message, in seconds. Raises LifetimeNotAllowed."""
        if wanted_s is None:
            return self.lifetime_s
        if not 0 < wanted_s <= self.lifetime_s:
            raise LifetimeNotAllowed(
                f"a lifetime of {wanted_s:g} s is not allowed: it must be above 0 and at most {self.lifetime_s:g}"
            )
        return wanted_s
