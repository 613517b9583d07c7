"""PUBLISH packets of a client: checked once, encoded for one connection, with topic aliases."""

from typing import Final

from mqtt import codes
from mqtt.aliases import OutboundAliases
from mqtt.bodies import check_payload_format
from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.encode import encode_publish
from mqtt.errors import LocalProtocolError, RemoteProtocolError
from mqtt.packets import Properties, Publish
from mqtt.properties import NO_PROPERTIES, encode_properties
from mqtt.topics import is_topic_name
from mqtt.wire import MANY, VARINT_MAX, write_varint

_PUBLISH: Final = PacketType.PUBLISH

# Recently used valid topic names in UTF-8, shared by all clients of a process. Bounded: cleared when full.
_NAMES_MAX: Final = 8_192
_NAME_LENGTH_MAX: Final = 128
_names: dict[str, bytes] = {}


def topic_bytes(topic: str) -> bytes:
    """The UTF-8 of a topic name; LocalProtocolError if it is not valid in a PUBLISH."""
    raw = _names.get(topic)
    if raw is None:
        if not is_topic_name(topic):
            raise LocalProtocolError(f"{topic[:100]!r} is not a topic name: it is empty, too long or has wildcards")
        raw = topic.encode()
        if len(topic) <= _NAME_LENGTH_MAX:
            if len(_names) >= _NAMES_MAX:
                _names.clear()
            _names[topic] = raw
    return raw


def check_publish(packet: Publish) -> None:
    """LocalProtocolError if a client must not send it. Whatever passes can be encoded, now or on a later connection,
    and the server can read it: otherwise it would end each connection on which the message is sent again. Also for
    messages that come another way, and that MQTT clients are to get."""
    raw = topic_bytes(packet.topic)
    if packet.qos not in (0, 1, 2):
        raise LocalProtocolError(f"QoS {packet.qos} does not exist: use 0, 1 or 2")
    properties = packet.properties
    section = 0
    if properties is not None:
        for name in ("topic_alias", "subscription_identifier"):
            if name in properties:
                raise LocalProtocolError(f"the caller must not set {name} in a PUBLISH")
        section = len(encode_properties(properties, _PUBLISH)) + 4  # a topic alias, and a longer length
        _check_properties(packet.payload, properties)
    if 9 + len(raw) + section + len(packet.payload) > VARINT_MAX:
        raise LocalProtocolError(f"a payload of {len(packet.payload)} bytes is too large for a PUBLISH")


def _check_properties(payload: bytes, properties: Properties) -> None:
    """Raises LocalProtocolError for values that can be encoded and that a server must not accept (3.3.2.3)."""
    response_topic = properties.get("response_topic")
    if response_topic is not None and not is_topic_name(response_topic):  # [MQTT-3.3.2-14]
        raise LocalProtocolError(f"{response_topic[:100]!r} is not a topic name: nobody could answer there")
    pairs = len(properties.get("user_property", ()))
    if pairs > MANY:
        raise LocalProtocolError(f"{pairs:,} user properties are too many: give {MANY:,} at most")
    try:
        check_payload_format(payload, properties)
    except RemoteProtocolError as error:
        raise LocalProtocolError(error.detail) from error


def check_reason(reason: ReasonCode, version: int) -> None:
    """LocalProtocolError if a message cannot be answered with this reason code (3.4.2.1, 3.5.2.1)."""
    if version != codes.VERSION_5:
        raise LocalProtocolError("MQTT 3.1.1 has no reason codes for messages: a message can only be accepted")
    if reason not in ALLOWED_REASONS[PacketType.PUBACK]:
        raise LocalProtocolError(f"PUBACK and PUBREC cannot carry {reason.name}")


class PublishEncoder:
    """Encodes the PUBLISH packets of one connection with at most `aliases_max` topic aliases, 0 for none."""

    __slots__ = ("_aliases", "_is_v5")

    def __init__(self, version: int, aliases_max: int) -> None:
        self._is_v5 = version == codes.VERSION_5
        self._aliases = OutboundAliases(aliases_max) if self._is_v5 and aliases_max else None

    def encode(self, packet: Publish) -> bytes:
        """The bytes of a checked packet. They must be sent, because the server learns topic aliases from them."""
        topic, properties = topic_bytes(packet.topic), packet.properties
        if self._aliases is not None:
            topic, section = self._aliased(self._aliases, packet)
        elif not self._is_v5:
            section = None
        else:
            section = NO_PROPERTIES if properties is None else encode_properties(properties, _PUBLISH)
        return encode_publish(topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id, section)

    def size(self, packet: Publish) -> int:
        """The largest size of a checked packet on the wire, in bytes."""
        length = 2 + len(topic_bytes(packet.topic)) + (2 if packet.qos else 0) + len(packet.payload)
        if self._is_v5:
            length += len(encode_properties(packet.properties, _PUBLISH))
            if self._aliases is not None:
                length += 4  # the alias, and perhaps one more byte for the section's length
        return 1 + len(write_varint(length)) + length

    def _aliased(self, aliases: OutboundAliases, packet: Publish) -> tuple[bytes, bytes]:
        alias, known = aliases.property_of(packet.topic)
        properties = {**(packet.properties or {}), "topic_alias": int.from_bytes(alias[1:])}
        section = encode_properties(properties, _PUBLISH)
        if known:
            return b"", section
        aliases.sent(packet.topic)
        return topic_bytes(packet.topic), section
