"""How `subscribe` and `request` write a message: as text for people, as JSON for programs, or as the payload alone."""

import base64
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from jobs.output import visible
from mqtt.packets import Publish


class Format(StrEnum):
    """The values of `--format`."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


def as_text(message: Publish) -> bytes:
    """`topic payload` on one line; what is not printable, or not UTF-8, is escaped."""
    return f"{visible(message.topic)} {payload_as_text(message.payload)}\n".encode()


def payload_as_text(payload: bytes) -> str:
    """On one line; what is not printable, or not UTF-8, is escaped."""
    return visible(payload.decode(errors="backslashreplace"))


def as_json(message: Publish) -> bytes:
    """One object on one line: topic, qos, retain, payload (or payload_base64 if it is not UTF-8), and the message's
    properties, if any, under their MQTT names."""
    shown: dict[str, Any] = {"topic": message.topic, "qos": message.qos, "retain": message.retain}
    try:
        shown["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        shown["payload_base64"] = base64.b64encode(message.payload).decode()
    properties = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in (message.properties or {}).items()
        if name != "topic_alias"
    }
    if properties:
        shown["properties"] = properties
    return json.dumps(shown).encode() + b"\n"


def as_raw(message: Publish) -> bytes:
    """The payload's bytes, followed by a line feed."""
    return message.payload + b"\n"


FORMATS: Mapping[Format, Callable[[Publish], bytes]] = {
    Format.TEXT: as_text,
    Format.JSON: as_json,
    Format.RAW: as_raw,
}
