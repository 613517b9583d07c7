"""Conversations in share groups as MQTT 5 user properties (R6). Pure.

| user property  | in                  | value                                                                    |
|----------------|---------------------|--------------------------------------------------------------------------|
| `conversation` | a message to a group | the id of the conversation, at most `gateway.shares.conversation_id_bytes` |
"""

from typing import Final

from mqtt.codes import PacketType
from mqtt.packets import Properties
from mqtt.properties import decode_properties
from mqtt.wire import Reader

CONVERSATION: Final = "conversation"


def conversation_in(properties: Properties, most_bytes: int) -> str | None:
    """The id of the conversation that a message with these properties belongs to; None if it belongs to none. Raises
    ValueError if it names several, or if the id is empty or has more than `most_bytes` bytes of UTF-8."""
    found = [value for name, value in properties.get("user_property", ()) if name == CONVERSATION]
    if not found:
        return None
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
