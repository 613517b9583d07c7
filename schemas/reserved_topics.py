"""Topics to which only the platform publishes: `$SYS/…` of each gateway, `$presence/…`, and `feeds/…`."""

from schemas.feed_topics import is_feed
from schemas.presence_topics import is_presence

SYSTEM_ROOT = "$SYS"
RESERVED_STARTS = ("$", "feeds")
"""Every reserved topic begins with one of these; for whoever asks about each message."""


def is_system(topic: str) -> bool:
    """Whether a topic name or filter speaks of `$SYS`; no filter that begins otherwise matches it [MQTT-4.7.2-1]."""
    return topic.startswith(SYSTEM_ROOT) and topic[len(SYSTEM_ROOT) :][:1] in ("", "/")


def is_reserved(topic: str) -> bool:
    """Whether only the platform publishes there: to `$SYS` the gateway itself, to `$presence` the ledger, to
    `feeds` feed adapters."""
    return is_system(topic) or is_presence(topic) or is_feed(topic)
