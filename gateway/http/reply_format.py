"""How a reply becomes an HTTP response, and what a stream of replies says besides them (R6). Pure.

The mapping is the reverse of that of a POST to `/v1/messages/…` (:mod:`gateway.http.posted_message`): the payload is
the body, byte for byte, and content type and user properties are headers. What a responder writes is not trusted: a
content type that cannot stand in a header is left out, and user properties are percent-encoded.
"""

from typing import Any, Final
from urllib.parse import quote

import msgspec
from multidict import CIMultiDict

from gateway.http.posted_message import is_content_type
from gateway.shard.messages import Message
from mqtt.codes import PacketType
from mqtt.errors import RemoteProtocolError
from mqtt.properties import NO_PROPERTIES, decode_properties
from mqtt.wire import Reader

MESSAGE_ID: Final = "Message-Id"
"""In the response: the message id of the reply."""
REQUEST_ID: Final = "Request-Message-Id"
"""In the response: the message id of the request."""

_UNKNOWN_TYPE: Final = "application/octet-stream"
_SAFE: Final = "!$&'()*+./:;?@_~-"
"""What stands unencoded in a user property, besides letters and digits."""


def properties_of(message: Message) -> dict[str, Any]:
    """MQTT properties by name; none if another writer to Kafka has written what cannot be read."""
    section = message.properties or NO_PROPERTIES
    try:
        return decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH) or {}
    except RemoteProtocolError:
        return {}


def reply_headers(message: Message, header_bytes: int, header_fields: int) -> CIMultiDict[str] | None:
    """The headers of the response; None if one is longer than `header_bytes`, or they are more than
    `header_fields`."""
    properties = properties_of(message)
    kind = properties.get("content_type", "")
    headers = CIMultiDict({"Content-Type": kind if is_content_type(kind) else _UNKNOWN_TYPE})
    headers["X-Content-Type-Options"] = "nosniff"
    headers[MESSAGE_ID] = message.id
    for name, value in properties.get("user_property", ()):
        headers.add("User-Property", f"{quote(name, safe=_SAFE)}={quote(value, safe=_SAFE + '=')}")
    if len(headers) > header_fields or any(len(name) + len(value) > header_bytes for name, value in headers.items()):
        return None
    return headers


def too_large_event(message_id: str, size: int) -> bytes:
    """Says that a reply was dropped; `size` is that of its payload and properties in bytes."""
    data = {"reason": "reply_too_large", "id": message_id, "bytes": size}
    return b"event: dropped\ndata: %b\n\n" % msgspec.json.encode(data)


def end_event(reason: str, replies: int, receivers: int | None) -> bytes:
    """The last event of a stream of replies; `receivers`: how many have got the request, None if that is not known."""
    data = {"reason": reason, "replies": replies} | ({} if receivers is None else {"receivers": receivers})
    return b"event: end\ndata: %b\n\n" % msgspec.json.encode(data)
