"""A message of MQTT on its way, and its envelope between agents, of the kind `mqtt` (M16).

The envelope is that of :mod:`edge.agent.envelope`; its payload is the message's. Further user properties, version 1:

    topic        the topic at the originator
    qos          "0", "1" or "2": the QoS at which it was published
    retain       "1" if it was published with the retain flag
    format       "1" if the payload is UTF-8 (MQTT 5.0, 3.3.2.3.2)
    user.NAME    a user property NAME of the message, in order

Content type, response topic, correlation data and what is left of the lifetime are properties of the MQTT message.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Self

from edge.agent.envelope import head, opened
from edge.agent.errors import EnvelopeError
from edge.client.message import IncomingMessage
from mqtt.client_publish import check_publish
from mqtt.errors import LocalProtocolError
from mqtt.packets import Properties, Publish, Will
from mqtt.properties import FORWARDED

KIND: Final = "mqtt"
NAME_BYTES_MAX: Final = 4_096  # of a user property
_USER: Final = "user."
EXPIRY: Final = "message_expiry_interval"


@dataclass(frozen=True)
class MqttMessage:
    """`properties` are those that recipients get unaltered (3.3.2.3); `lifetime_s` is what is left, None for no end."""

    id: str
    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    properties: Properties = field(default_factory=dict)
    lifetime_s: int | None = None

    @classmethod
    def of(cls, identifier: str, packet: Publish | Will) -> Self:
        """What a client has published, or its will."""
        found = packet.properties or {}
        kept: Properties = {name: found[name] for name in FORWARDED if name in found}
        return cls(identifier, packet.topic, packet.payload, packet.qos, packet.retain, kept, found.get(EXPIRY))

    @property
    def size(self) -> int:
        """Bytes that count towards limits."""
        return len(self.topic.encode()) + len(self.payload) + size_of(self.properties)

    @property
    def has_long_names(self) -> bool:
        """Whether a user property's name is too long for an envelope."""
        return any(len(name.encode()) > NAME_BYTES_MAX for name, _ in self.properties.get("user_property", ()))

    def envelope(self) -> list[tuple[str, str]]:
        """The user properties of its message to an agent."""
        found = [*head(self.id, KIND), ("topic", self.topic), ("qos", str(self.qos))]
        if self.retain:
            found.append(("retain", "1"))
        if self.properties.get("payload_format_indicator"):
            found.append(("format", "1"))
        return found + [(_USER + name, value) for name, value in self.properties.get("user_property", ())]


def size_of(properties: Properties) -> int:
    """About how many bytes the properties have."""
    size = 0
    for value in properties.values():
        if isinstance(value, list):
            size += sum(len(name.encode()) + len(text.encode()) + 5 for name, text in value)
        else:
            size += 3 + (
                len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 4
            )
    return size


def is_mqtt(properties: list[tuple[str, str]]) -> bool:
    """Whether it claims to be a message of this kind."""
    found = dict(properties)
    return found.get("kind") == KIND and "waystation-envelope" in found


def plain(identifier: str, message: IncomingMessage) -> MqttMessage:
    """A message without an envelope, as a broker or the platform has sent it."""
    return MqttMessage(
        identifier,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        _kept(message, message.user_properties, is_utf8=message.is_utf8),
        message.expiry_s,
    )


def unpacked(message: IncomingMessage) -> MqttMessage:
    """The message in an envelope. Raises EnvelopeError, whatever the bytes."""
    properties = message.user_properties
    identifier, _ = opened(properties)
    single = dict(properties)
    topic, qos = single.get("topic", ""), single.get("qos", "")
    if qos not in ("0", "1", "2"):
        raise EnvelopeError("its QoS is missing or malformed")
    user = [(name[len(_USER) :], value) for name, value in properties if name.startswith(_USER)]
    is_utf8 = single.get("format") == "1" and _is_utf8(message.payload)
    kept, is_retained = _kept(message, user, is_utf8=is_utf8), single.get("retain") == "1"
    try:
        check_publish(Publish(topic, message.payload, int(qos), is_retained, properties=kept))
    except LocalProtocolError as error:  # the mesh carries more than a packet holds
        raise EnvelopeError(f"no client can get its message: {error}") from error
    return MqttMessage(identifier, topic, message.payload, int(qos), is_retained, kept, message.expiry_s)


def _kept(message: IncomingMessage, user: list[tuple[str, str]], *, is_utf8: bool) -> Properties:
    found: dict[str, Any] = {
        "payload_format_indicator": 1 if is_utf8 else None,
        "content_type": message.content_type,
        "response_topic": message.response_topic,
        "correlation_data": message.correlation,
        "user_property": user or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
