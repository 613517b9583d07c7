"""`feeds/<name>/<source stream id>`: the topics of redundant feeds, for plain MQTT subscribers (S3).

Only feed adapters publish there: each writes its copy of a message to `ingress`, with the sender of its slot. The homes
of subscribers merge the copies.
"""

from typing import Final

FEEDS_ROOT: Final = "feeds"
FEEDS_PREFIX: Final = b"feeds/"
"""Keys on `ingress` and `egress` that may be of feeds begin so."""

SLOT_NAMES: Final = ("active", "backup")


def is_feed(topic: str) -> bool:
    """Whether this is a topic of feeds."""
    return topic.startswith(FEEDS_ROOT) and topic[len(FEEDS_ROOT) :][:1] in ("", "/")


def feed_topic(name: str, stream: str) -> str:
    """The topic of the source stream `stream` of the feed `name`."""
    return f"{FEEDS_ROOT}/{name}/{stream}"


def feed_of(topic: str) -> tuple[str, str] | None:
    """Feed and source stream id of a topic; None if it does not name both."""
    root, _, rest = topic.partition("/")
    name, _, stream = rest.partition("/")
    return (name, stream) if root == FEEDS_ROOT and name and stream else None


def feed_sender(name: str, slot: int) -> str:
    """The sender (client id) of a feed's copies: one for each slot, whichever adapter holds it, so that all are in one
    partition of `ingress`, in order."""
    return f"$feed/{name}/{SLOT_NAMES[slot]}"


def feed_route_keys(name: str) -> tuple[str, ...]:
    """The route keys by which a shard may get copies of the feed: those of `candidate_keys`."""
    return f"{FEEDS_ROOT}/{name}", FEEDS_ROOT, "#"
