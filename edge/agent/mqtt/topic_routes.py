"""Which way a message of a local client goes, by its topic (M16): decided from the configuration alone.

A topic that begins with `$` or `@` needs a filter that begins so: a wildcard does not match it. Else whoever may
publish `#` could write to the inboxes of agents, as if another agent had done so.
"""

from collections.abc import Mapping
from typing import Final

from mqtt.topics import SHARED_PREFIX, is_topic_filter, is_topic_name, matches
from schemas.identity import INBOX_MARK

PLATFORM: Final = "platform"
LOCAL: Final = "local"
"""Only for subscribers here."""
_WILD: Final = ("+", "#")


class TopicRoutes:
    """`targets` by topic filter: `platform`, `local`, or `@` and an agent. The first filter that matches counts, in the
    order of the file. `prefix`: what topics get in front on the platform."""

    def __init__(self, targets: Mapping[str, str], prefix: str = "") -> None:
        self._targets, self.prefix = tuple(targets.items()), prefix

    def of(self, topic: str) -> str | None:
        """The target of a valid topic name; None if there is no route."""
        for topic_filter, target in self._targets:
            if covers(topic_filter, topic):
                return target
        return None


def covers(topic_filter: str, topic: str) -> bool:
    """Whether the filter of a route matches the topic; see the module for `@` and `$`."""
    if topic.startswith(INBOX_MARK) and topic_filter[0] in _WILD:
        return False
    return matches(topic_filter, topic)


def problem_of(topic_filter: str, target: str) -> str:
    """What is wrong with a route; empty if nothing is."""
    if not is_topic_filter(topic_filter) or topic_filter.startswith(SHARED_PREFIX):
        return f"{topic_filter!r} is not a topic filter"
    if target in (PLATFORM, LOCAL):
        return ""
    if not target.startswith(INBOX_MARK) or not target.strip(INBOX_MARK) or not is_topic_name(target):
        return f"{target!r}, for {topic_filter!r}, is not platform, not local, and not @ and a client id"
    return ""
