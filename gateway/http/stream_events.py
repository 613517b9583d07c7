"""Server-sent events (WHATWG HTML, 9.2): the format of a delivered message, and the id that acknowledges it."""

import base64
import re
from typing import Any, Final, NamedTuple

import msgspec

from gateway.shard.messages import Message
from mqtt.codes import PacketType
from mqtt.errors import RemoteProtocolError
from mqtt.properties import NO_PROPERTIES, decode_properties
from mqtt.wire import Reader

EVENT_ID_PATTERN: Final = "^[0-9a-f]{16}-[0-9]{1,15}$"
_EVENT_ID = re.compile("([0-9a-f]{16})-([0-9]{1,15})")
RETRY_MS: Final = 1000


class EventId(NamedTuple):
    """The id of an event: `window` names the stream's record of sent events, `number` counts in it from 1."""

    window: str
    number: int

    @classmethod
    def parse(cls, text: str) -> "EventId | None":
        found = _EVENT_ID.fullmatch(text)
        return cls(found[1], int(found[2])) if found else None

    def __str__(self) -> str:
        return f"{self.window}-{self.number}"


def message_event(message: Message, qos: int, retain: bool, event_id: EventId | None, now: float) -> bytes:
    """One event. `event_id` is None at QoS 0, which is not acknowledged; `now` is in seconds since the epoch."""
    payload, encoding = _text(message.payload)
    data = {
        "id": message.id,
        "topic": message.topic,
        "payload": payload,
        "encoding": encoding,
        "qos": qos,
        "retain": retain,
        "properties": _properties(message, now),
    }
    head = f"id: {event_id}\n" if event_id is not None else ""
    return b"%bevent: message\ndata: %b\n\n" % (head.encode(), msgspec.json.encode(data))


def end_event(reason: str) -> bytes:
    """The last event of a stream that the gateway ends."""
    return b"event: end\ndata: %b\n\n" % msgspec.json.encode({"reason": reason})


def comment(text: str) -> bytes:
    return f": {text}\n\n".encode()


def _text(payload: bytes) -> tuple[str, str]:
    try:
        return payload.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


def _properties(message: Message, now: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if message.expires is not None:
        found["expiry"] = max(0, int(message.expires / 1000 - now))
    section = message.properties or NO_PROPERTIES
    try:
        decoded = decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH) or {}
    except RemoteProtocolError:  # by another writer to Kafka: MQTT clients get it unchanged
        return found
    for name, value in decoded.items():
        if name == "user_property":
            found["user_properties"] = [list(pair) for pair in value]
        elif name == "correlation_data":
            found[name] = base64.b64encode(value).decode()
        else:
            found[name] = value
    return found
