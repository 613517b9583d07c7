"""What has changed between two looks at a feed (S1). Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from feeds.brokering import FeedStatus
from feeds.registry import KnownAdapter
from schemas.feed_api import ChangeKind


class Seen(NamedTuple):
    """A feed at a moment; `alive` are names of those of `adapters`."""

    status: FeedStatus
    adapters: dict[str, KnownAdapter]
    alive: frozenset[str]


class Difference(NamedTuple):
    """`adapter` is empty if it is about the feed."""

    kind: ChangeKind
    adapter: str = ""
    reason: str = ""


def differences(before: Seen | None, after: Seen, switch_reason: str) -> Iterator[Difference]:
    """In the order: adapters by name, switch, state of the feed. `switch_reason`: of the present assignment."""
    old = Seen(after.status._replace(state="down", revision=after.status.revision), {}, frozenset())
    before = old if before is None else before
    for name in sorted({*before.adapters, *after.adapters}):
        found = _of_adapter(name, before, after)
        if found is not None:
            yield found
    if before.status.revision != after.status.revision:
        yield Difference("switched", reason=switch_reason)
    if before.status.state != after.status.state:
        yield Difference(after.status.state, reason=after.status.reason)


def _of_adapter(name: str, before: Seen, after: Seen) -> Difference | None:
    was, is_alive = name in before.alive, name in after.alive
    known = after.adapters.get(name)
    if is_alive and known is not None:
        if not was:
            return Difference("adapter_came", name, known.beat.reason)
        if before.adapters[name].beat.state != known.beat.state:
            return Difference("adapter_state", name, f"{known.beat.state}: {known.beat.reason}".rstrip(": "))
        return None
    if not was:
        return None
    if known is not None and known.beat.state == "gone":
        return Difference("adapter_left", name, known.beat.reason)
    return Difference("adapter_died", name, "no heartbeat" if known is not None else "its record was removed")
