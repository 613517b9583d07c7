"""Messages and events of a feed as lines of JSON."""

import base64
import json
from typing import Any, Final

from feeds.merge_events import (
    Delivered,
    Different,
    Duplicate,
    Event,
    Expired,
    Late,
    Lost,
    Recovered,
    Refused,
    Suspected,
)
from feeds.message import Feed, FeedMessage
from feeds.registry_records import SLOTS

NOT_SHOWN: Final = (Duplicate,)
"""Each message has one."""


def message_line(feed: Feed, message: FeedMessage, **more: Any) -> str:
    """One message. `payload` if it is text in UTF-8, else `payload_base64`."""
    try:
        payload = {"payload": message.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(message.payload).decode()}
    return _line("message", _named(feed, message) | {"read_us": message.read_us} | payload | more)


def event_line(event: Event) -> str | None:
    """What the merger says; None for what is not shown."""
    match event:
        case Delivered(feed, message):
            return message_line(feed, message)
        case Late(feed, message, deliver):
            return message_line(feed, message, late=True) if deliver else None
        case Different(feed, message) | Expired(feed, message):
            return _line(type(event).__name__.lower(), _named(feed, message))
        case Refused(feed, message, limit):
            return _line("refused", _named(feed, message) | {"limit": limit})
        case Suspected(stream, first, last):
            return _line("suspected", {"stream": stream, "first": first, "last": last})
        case Lost(stream, first, last, reason):
            return _line("lost", {"stream": stream, "first": first, "last": last, "reason": str(reason)})
        case Recovered(feed, stream, sequence):
            return _line("recovered", {"stream": stream, "sequence": sequence, "slot": SLOTS[feed]})
    return None


def feed_line(state: str, active: str | None, backup: str | None, reason: str) -> str:
    """How the feed itself is doing; slots, None if there is none."""
    return _line("feed", {"state": state, "active": active, "backup": backup, "reason": reason})


def _named(feed: Feed, message: FeedMessage) -> dict[str, Any]:
    found = {"stream": message.stream, "sequence": message.sequence, "part": message.part}
    return found | {"slot": SLOTS[feed], "adapter": message.adapter}


def _line(kind: str, fields: dict[str, Any]) -> str:
    """In ASCII: what a source sends must not control a terminal or change the direction of a line."""
    return json.dumps({"type": kind, **fields})
