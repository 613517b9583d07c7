"""Converts a POST to `/v1/messages/…` to a PUBLISH (MQTT 5.0, 3.3)."""

import base64
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from multidict import CIMultiDictProxy

from gateway.http.identity import one_header
from gateway.http.problems import bad_request
from gateway.http.target import Query, decode_percent
from gateway.shard.asked_receipts import AskedReceipt
from mqtt.limits import EXPIRY_MAX_S
from mqtt.packets import Publish
from mqtt.topics import is_topic_name

PARAMETERS: Final = ("expiry", "qos", "response_topic", "retain")
QOS: Final[Mapping[str, int]] = MappingProxyType({"0": 0, "1": 1})

KEY: Final = "Idempotency-Key"

FORM: Final = "application/x-www-form-urlencoded"
"""curl's default for any body, so it counts as no content type."""

_RAW = r"A-Za-z0-9!$&'()*+./:;?@_~\-"
_ESCAPE = "%[0-9A-Fa-f]{2}"
_PAIR = rf"(?:[{_RAW}]|{_ESCAPE})+=(?:[{_RAW}=]|{_ESCAPE})*"
_PAIRS = re.compile(rf"{_PAIR}(?:, *{_PAIR})*")
KEY_PATTERN: Final = "^[!-~]{1,255}$"
CONTENT_TYPE_PATTERN: Final = "^[!-~]([ -~]*[!-~])?$"
_KEY = re.compile(KEY_PATTERN[:-1])
_CONTENT_TYPE = re.compile(CONTENT_TYPE_PATTERN[:-1])

T = TypeVar("T")


class Posted(NamedTuple):
    """A posted message without its payload, which is read later; `key` is its Idempotency-Key, "" if none; `receipt`:
    what the gateway itself asks for."""

    packet: Publish
    key: str
    receipt: AskedReceipt | None = None


def posted(raw_destination: str, query: Query, headers: CIMultiDictProxy[str]) -> Posted:
    """Raises Problem 400, which says what is wrong."""
    topic = destination(raw_destination)
    qos = one_of(query, "qos", QOS, 1)
    retain = one_of(query, "retain", {"true": True, "false": False}, False)
    properties = _properties(query, headers)
    query.done(PARAMETERS)
    key = idempotency_key(headers)
    return Posted(Publish(topic, b"", qos, retain, False, qos, properties or None), key)


def destination(raw: str) -> str:
    """The topic in a path, which is still encoded. Raises Problem 400."""
    topic = decode_percent(raw, "the destination")
    if not is_topic_name(topic):
        raise bad_request(
            "topic_name_invalid", "the destination is not a topic name: 1 to 65,535 bytes without +, # and U+0000"
        )
    return topic


def idempotency_key(headers: CIMultiDictProxy[str]) -> str:
    """The request's Idempotency-Key, "" if none. Raises Problem 400."""
    key = one_header(headers, KEY)
    if key is not None and not _KEY.fullmatch(key):
        raise bad_request("malformed_idempotency_key", "an Idempotency-Key must have 1 to 255 visible ASCII characters")
    return key or ""


def one_of(query: Query, name: str, allowed: Mapping[str, T], default: T) -> T:
    """What a parameter means, by its text. Raises Problem 400 for another text."""
    text = query.take(name)
    if text is None:
        return default
    if text not in allowed:
        raise bad_request("malformed_parameter", f"{name} must be one of: {', '.join(allowed)}")
    return allowed[text]


def _properties(query: Query, headers: CIMultiDictProxy[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    expiry = query.take("expiry")
    if expiry is not None:
        if not re.fullmatch("0|[1-9][0-9]{0,9}", expiry) or int(expiry) > EXPIRY_MAX_S:
            raise bad_request(
                "malformed_parameter", f"expiry must be a whole number of seconds from 0 to {EXPIRY_MAX_S}"
            )
        found["message_expiry_interval"] = int(expiry)
    kind = content_type(headers)
    if kind:
        found["content_type"] = kind
    response_topic = query.take("response_topic")
    if response_topic is not None:
        if not is_topic_name(response_topic):
            raise bad_request("topic_name_invalid", "response_topic is not a topic name")
        found["response_topic"] = response_topic
    correlation = one_header(headers, "Correlation-Data")
    if correlation is not None:
        try:
            found["correlation_data"] = base64.b64decode(correlation, validate=True)
        except ValueError as error:
            raise bad_request("malformed_header", "Correlation-Data is not base64") from error
    pairs = user_properties(headers)
    if pairs:
        found["user_property"] = pairs
    return found


def content_type(headers: CIMultiDictProxy[str]) -> str:
    """The message's content type, "" if none. Raises Problem 400."""
    kind = one_header(headers, "Content-Type")
    if not kind or kind.lower() == FORM:
        return ""
    if not is_content_type(kind):
        raise bad_request("malformed_header", "Content-Type must have only printable ASCII characters")
    return kind


def is_content_type(text: str) -> bool:
    """Whether a message's content type can stand in a header."""
    return _CONTENT_TYPE.fullmatch(text) is not None


def user_properties(headers: CIMultiDictProxy[str]) -> list[tuple[str, str]]:
    """The message's user properties, in order. Raises Problem 400."""
    return [pair for line in headers.getall("User-Property", []) for pair in _pairs(line)]


def _pairs(line: str) -> list[tuple[str, str]]:
    """Parses `name=value, …`; a proxy may join lines in this form (RFC 9110, 5.3)."""
    if not _PAIRS.fullmatch(line):
        raise bad_request("malformed_header", "User-Property must be name=value, with other characters percent-encoded")
    pairs = []
    for pair in line.split(","):
        name, _, value = pair.strip().partition("=")
        decoded = decode_percent(name, "User-Property"), decode_percent(value, "User-Property")
        if "\0" in "".join(decoded):
            raise bad_request("malformed_header", "User-Property contains U+0000")
        pairs.append(decoded)
    return pairs
