"""Topics to which only the platform publishes: `$SYS/…` and `$feeds/…` of each gateway, `$presence/…`,
`$cluster/…`, `feeds/…`; and `$read/…`, where a gateway takes what is no message."""

from schemas.cluster_topics import is_cluster
from schemas.feed_api import FEEDS_ROOT
from schemas.feed_topics import is_feed
from schemas.presence_topics import is_presence
from schemas.receipts import READ_START

SYSTEM_ROOT = "$SYS"
RESERVED_STARTS = ("$", "feeds")
"""Every reserved topic begins with one of these; for whoever asks about each message."""


def is_system(topic: str) -> bool:
    """Whether a topic name or filter speaks of `$SYS`; no filter that begins otherwise matches it [MQTT-4.7.2-1]."""
    return topic.startswith(SYSTEM_ROOT) and topic[len(SYSTEM_ROOT) :][:1] in ("", "/")


def is_local(topic: str) -> bool:
    """Whether a topic name or filter speaks of `$SYS` or `$feeds`: each gateway publishes there to its own clients,
    without Kafka and the routers."""
    return is_system(topic) or (topic.startswith(FEEDS_ROOT) and topic[len(FEEDS_ROOT) :][:1] in ("", "/"))


def is_reserved(topic: str) -> bool:
    """Whether only the platform publishes there: to `$SYS` and `$feeds` the gateway itself, to `$presence` the
    ledger, to `$cluster` gateways that share shards, to `feeds` feed adapters; to `$read` nobody: what a client has
    read goes to no subscriber."""
    own = is_local(topic) or is_presence(topic) or is_cluster(topic) or is_feed(topic)
    return own or topic.startswith(READ_START)
