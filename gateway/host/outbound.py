"""Encodes a delivery as PUBLISH for one client: with its own properties and topic aliases (MQTT 5.0, 3.3.2.3)."""

from collections.abc import Callable

from gateway.shard.messages import Delivery, Message
from mqtt.aliases import OutboundAliases
from mqtt.codes import VERSION_5, PacketType
from mqtt.encode import encode_publish
from mqtt.limits import EXPIRY_MAX_S
from mqtt.properties import NO_PROPERTIES, encode_properties, encode_subscription_identifiers
from mqtt.wire import write_varint


class PublishEncoder:
    """Encodes for one connection. `aliases` are those that the client knows, None if it takes none; `clock` gives
    seconds since the epoch."""

    __slots__ = ("_clock", "_identifiers", "_identifiers_encoded", "_is_v5", "_unsent", "aliases")

    def __init__(self, version: int, aliases: OutboundAliases | None, clock: Callable[[], float]) -> None:
        self._is_v5 = version == VERSION_5
        self.aliases = aliases
        self._clock = clock
        self._unsent: str | None = None
        self._identifiers: tuple[int, ...] = ()
        self._identifiers_encoded = b""

    def encode(self, message: Message, delivery: Delivery) -> bytes:
        """The packet; call :meth:`sent` if it is sent, before the next one is encoded."""
        topic, properties = message.topic.encode(), None
        if self._is_v5:
            properties = message.properties or NO_PROPERTIES
            if delivery.subscription_ids or message.expires is not None:
                properties = self._with_own(message, delivery, properties)
            if self.aliases is not None:
                alias, is_known = self.aliases.property_of(message.topic)
                properties = _with_property(alias, properties)
                if is_known:
                    topic = b""
                else:
                    self._unsent = message.topic
        return encode_publish(
            topic, message.payload, delivery.qos, delivery.retain, delivery.dup, delivery.packet_id, properties
        )

    def sent(self) -> None:
        """The packet encoded last has been sent."""
        if self._unsent is not None and self.aliases is not None:
            self.aliases.sent(self._unsent)
            self._unsent = None

    def dropped(self) -> None:
        """The packet encoded last is not sent."""
        self._unsent = None

    def _with_own(self, message: Message, delivery: Delivery, section: bytes) -> bytes:
        """The message's property section plus the properties of this delivery."""
        own = b""
        if message.expires is not None:
            left_s = min(EXPIRY_MAX_S, max(0, int(message.expires / 1000 - self._clock())))  # a clock may be behind
            own = _body(encode_properties({"message_expiry_interval": left_s}, PacketType.PUBLISH))
        if delivery.subscription_ids:
            if delivery.subscription_ids != self._identifiers:  # mostly the same as in the last delivery
                self._identifiers = delivery.subscription_ids
                self._identifiers_encoded = encode_subscription_identifiers(delivery.subscription_ids)
            own += self._identifiers_encoded
        return _with_property(own, section)


def _with_property(encoded: bytes, section: bytes) -> bytes:
    """Adds already encoded properties at the front of a property section."""
    bodies = encoded + _body(section)
    return write_varint(len(bodies)) + bodies


def _body(section: bytes) -> bytes:
    start = 0
    while section[start] & 128:
        start += 1
    return section[start + 1 :]
