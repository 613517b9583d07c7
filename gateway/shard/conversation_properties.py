"""Reading and writing the user properties of conversations in share groups (R6; :mod:`schemas.conversations`). Pure."""

from typing import NamedTuple

from mqtt.codes import PacketType
from mqtt.packets import Properties
from mqtt.properties import decode_properties, encode_properties
from mqtt.wire import MANY, Reader
from schemas.conversations import CONVERSATION, GONE, RECEIVER, RESTARTED


def conversation_in(properties: Properties, most_bytes: int) -> str | None:
    """The id of the conversation that a message with these properties belongs to; None if it belongs to none. Raises
    ValueError if it names several, if the id is empty or has more than `most_bytes` bytes of UTF-8, or if a packet has
    no room for one more user property."""
    pairs = properties.get("user_property", ())
    found = [value for name, value in pairs if name == CONVERSATION]
    if not found:
        return None
    if len(pairs) >= MANY:
        raise ValueError(f"a message of a conversation has at most {MANY - 1} user properties")
    if len(found) > 1:
        raise ValueError(f"a message belongs to one conversation, not to {len(found)}")
    if not 0 < len(found[0].encode()) <= most_bytes:
        raise ValueError(f"the id of a conversation has 1 to {most_bytes} bytes")
    return str(found[0])


def conversation_of(section: bytes, most_bytes: int) -> str | None:
    """The same of an encoded property section, which is valid; None also if the id is not: it may be older than the
    present limit, or of a program that writes to Kafka itself."""
    properties = decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH)
    try:
        return conversation_in(properties or {}, most_bytes)
    except ValueError:
        return None


def restarted(section: bytes) -> bytes:
    """The property section of a message of a conversation, as the first one that another member gets."""
    properties = decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH) or {}
    pairs = [*properties.get("user_property", ()), (RESTARTED, "true")]
    return encode_properties(properties | {"user_property": pairs}, PacketType.PUBLISH)


class Notice(NamedTuple):
    """`topic` is the Response Topic, `section` the encoded properties."""

    topic: str
    section: bytes


def receiver_gone(section: bytes, conversation: str) -> Notice | None:
    """What tells the sender of a message with these properties that the receiver of the conversation is gone; None if
    it asks for no answers."""
    properties = decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH) or {}
    topic = properties.get("response_topic")
    if topic is None:
        return None
    told: Properties = {"user_property": [(CONVERSATION, conversation), (RECEIVER, GONE)]}
    if "correlation_data" in properties:
        told["correlation_data"] = properties["correlation_data"]
    return Notice(str(topic), encode_properties(told, PacketType.PUBLISH))
