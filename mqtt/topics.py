"""Topic names, topic filters, shared subscriptions (MQTT 5.0, 4.7 and 4.8.2; MQTT 3.1.1, 4.7).

`matches` is the reference: every index that a session keeps must agree with it.
"""

from typing import Final

SHARED_PREFIX: Final = "$share/"
_STRING_BYTES_MAX: Final = 65_535
_BRIDGE_ROOT: Final = "$SYS/broker/connection/"
_BRIDGE_STATE: Final = "/state"


def is_topic_name(topic: str) -> bool:
    """Whether `topic` is valid in a PUBLISH: no wildcards, U+0000 or surrogates, 1 to 65,535 bytes (4.7.1, 4.7.3)."""
    return "#" not in topic and "+" not in topic and is_topic_string(topic)


def is_topic_filter(topic_filter: str) -> bool:
    """Whether `topic_filter` is well formed: each wildcard alone on its level, `#` only on the last (4.7.1).

    A filter that begins with `$share/` has further rules: see :func:`split_shared`.
    """
    if not is_topic_string(topic_filter):
        return False
    if "#" not in topic_filter and "+" not in topic_filter:
        return True
    *levels, last = topic_filter.split("/")
    return all("#" not in level and _plus_stands_alone(level) for level in levels) and (
        last == "#" or ("#" not in last and _plus_stands_alone(last))
    )


def is_topic_string(text: str) -> bool:
    """Whether `text` may be a topic name or filter, wildcards aside: no U+0000 or surrogates, 1 to 65,535 bytes
    (4.7.3)."""
    if not text or "\0" in text:
        return False
    try:
        return len(text.encode()) <= _STRING_BYTES_MAX
    except UnicodeEncodeError:
        return False


def is_bridge_state(topic: str) -> bool:
    """Whether a bridge of mosquitto reports on this topic whether it is connected, by a message and by its will."""
    return topic.startswith(_BRIDGE_ROOT) and topic[len(_BRIDGE_ROOT) :].endswith(_BRIDGE_STATE)


def split_shared(topic_filter: str) -> tuple[str, str] | None:
    """(share name, filter) of `$share/name/filter`; None if that form or its parts are not valid (4.8.2)."""
    if not topic_filter.startswith(SHARED_PREFIX):
        return None
    name, slash, rest = topic_filter[len(SHARED_PREFIX) :].partition("/")
    if not name or not slash or "+" in name or "#" in name or "\0" in name or not is_topic_filter(rest):
        return None
    return name, rest


def may_subscribe(topic_filter: str, is_v5: bool) -> bool:
    """Whether SUBSCRIBE and UNSUBSCRIBE may name it: a topic filter, or on 5.0 a shared subscription (4.7.1, 4.8.2)."""
    if is_v5 and topic_filter.startswith(SHARED_PREFIX):
        return split_shared(topic_filter) is not None and is_topic_filter(topic_filter)
    return is_topic_filter(topic_filter)


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a valid `topic_filter` (without `$share/name/`) matches a valid topic name (4.7.1, 4.7.2)."""
    levels = topic.split("/")
    wanted_levels = topic_filter.split("/")
    if topic.startswith("$") and wanted_levels[0] in ("+", "#"):
        return False  # [MQTT-4.7.2-1]
    for position, wanted in enumerate(wanted_levels):
        if wanted == "#":
            return True  # also matches the parent level: `a/#` matches `a`
        if position == len(levels) or wanted not in ("+", levels[position]):
            return False
    return len(wanted_levels) == len(levels)


def _plus_stands_alone(level: str) -> bool:
    return level == "+" or "+" not in level
