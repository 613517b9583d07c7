"""Server-sent events as a gateway streams them (WHATWG HTML, 9.2.6), parsed from bytes as they arrive; no I/O (G11).

The stream comes from a socket and may be anything: lines and events have a largest size, and whatever is no event of a
gateway is an AnswerFault. A message has the topics and properties that MQTT allows. A truncated event is never given.
"""

import base64
import re
from typing import Annotated, Any, Final

import msgspec

from edge.errors import AnswerFault
from mqtt.codes import PacketType, ReasonCode
from mqtt.errors import ProtocolError
from mqtt.packets import Properties, Publish
from mqtt.properties import decode_properties, encode_properties
from mqtt.topics import is_topic_name
from mqtt.wire import Reader
from schemas.undecodable import UNDECODABLE

EVENT_BYTES_MAX: Final = 24 << 20
"""Above the largest event of a gateway: a packet of 16 MiB in base64, and its properties."""

_EVENT_ID: Final = re.compile("[!-~]{1,100}")
_MESSAGE, _END = "message", "end"
_AS_THEY_ARE: Final = ("payload_format_indicator", "content_type", "response_topic")


class StreamEvent(msgspec.Struct, gc=False):
    """One event: `name`, `data`, and `event_id`, "" if it has none."""

    name: str
    data: bytes
    event_id: str


class EventParser:
    """`receive` takes bytes and returns the events that are complete."""

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._most = event_bytes_max
        self._rest = bytearray()
        self._searched = 0
        self._name, self._event_id = "", ""
        self._data: list[bytes] = []
        self._size = 0

    def receive(self, data: bytes) -> list[StreamEvent]:
        """Raises AnswerFault for a line or an event that is too large, or not UTF-8."""
        self._rest += data
        events: list[StreamEvent] = []
        start = 0
        while (end := self._rest.find(b"\n", max(start, self._searched))) >= 0:
            self._line(bytes(self._rest[start:end]).removesuffix(b"\r"), events)
            start = self._searched = end + 1
        del self._rest[:start]
        self._searched = len(self._rest)
        if len(self._rest) + self._size > self._most:
            raise AnswerFault(f"an event has more than {self._most} bytes")
        return events

    def _line(self, line: bytes, events: list[StreamEvent]) -> None:
        if not line:
            if self._data:
                events.append(StreamEvent(self._name or _MESSAGE, b"\n".join(self._data), self._event_id))
            self._reset()
            return
        self._size += len(line)
        if self._size > self._most:
            raise AnswerFault(f"an event has more than {self._most} bytes")
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field in (b"event", b"id"):
            try:
                text = value.decode()
            except UnicodeDecodeError as error:
                raise AnswerFault("an event is not UTF-8") from error
            if field == b"event":
                self._name = text
            else:
                self._event_id = text

    def _reset(self) -> None:
        self._name, self._event_id = "", ""
        self._data = []
        self._size = 0


class Received(msgspec.Struct, gc=False):
    """A delivered message: `message_id` is the platform's; `event_id` acknowledges it, "" at QoS 0."""

    packet: Publish
    message_id: str
    event_id: str


class _Data(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(max_length=64)]
    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=65_535)]
    payload: str
    encoding: str
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)]
    retain: bool
    properties: dict[str, Any]


class _End(msgspec.Struct):
    reason: str


def decode_message(event: StreamEvent) -> Received | None:
    """A `message` event; None for an event of a name that this version does not know. Raises AnswerFault."""
    if event.name != _MESSAGE:
        return None
    data = _decoded(event, _Data)
    try:
        payload = base64.b64decode(data.payload, validate=True) if data.encoding == "base64" else data.payload.encode()
        properties = _properties(data.properties)
    except (ValueError, TypeError, AttributeError, ProtocolError) as error:
        raise AnswerFault(f"a message is malformed ({error})") from error
    if not is_topic_name(data.topic):
        raise AnswerFault(f"{data.topic[:100]!r} is not a topic name")
    if data.qos and not _EVENT_ID.fullmatch(event.event_id):
        raise AnswerFault("a message has no event id that could be sent back")
    packet = Publish(data.topic, payload, data.qos, data.retain, properties=properties)
    return Received(packet, data.id, event.event_id if data.qos else "")


def decode_end(event: StreamEvent) -> ReasonCode | None:
    """Why the gateway ends the stream, if this event says that it does."""
    return reason_named(_decoded(event, _End).reason) if event.name == _END else None


def reason_named(name: str) -> ReasonCode:
    """The reason code that a gateway writes as a word; UNSPECIFIED_ERROR for one that this version does not know."""
    return ReasonCode.__members__.get(name.upper(), ReasonCode.UNSPECIFIED_ERROR)


def _properties(found: dict[str, Any]) -> Properties | None:
    """Those that a message can have, checked as in a PUBLISH; others are of a later version, and left out. Raises
    ValueError, TypeError, ProtocolError."""
    properties: Properties = {name: found[name] for name in _AS_THEY_ARE if name in found}
    if "user_properties" in found:
        properties["user_property"] = [(name, text) for name, text in found["user_properties"]]
    if "correlation_data" in found:
        properties["correlation_data"] = base64.b64decode(found["correlation_data"], validate=True)
    if "expiry" in found:
        properties["message_expiry_interval"] = found["expiry"]
    section = encode_properties(properties, PacketType.PUBLISH)
    return decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH)


def _decoded(event: StreamEvent, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(event.data, type=kind)
    except UNDECODABLE as error:
        raise AnswerFault(f"an event is no {event.name} ({error})") from error
