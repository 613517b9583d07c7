"""Which active and which backup stream a subscriber is told of, and what is wrong with the two (S1). Pure.

A slot of a feed is written by its holder (:mod:`feeds.registry`). The two streams are a pair if both slots are written
and :func:`feeds.pairing.decide` agrees; otherwise a subscriber is told of one. While more than one adapter writes to a
slot, the two on different machines, and in different zones, are named. Nobody can order an adapter elsewhere: what
would be better is advice.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from feeds.errors import FeedSettingsError
from feeds.pairing import Paired, Refused, decide
from feeds.registry import KnownAdapter, Registry
from feeds.registry_records import other_slot
from schemas.feed_words import Slot

FeedState = Literal["redundant", "single", "down", "refused"]
STATES: Final[tuple[FeedState, ...]] = ("redundant", "single", "down", "refused")

_CANDIDATES: Final = 8
"""Of the adapters that write to a slot, so many are considered: more than two at once are a mistake."""


class FeedStatus(NamedTuple):
    """`redundant`: both streams are there and are a pair; `single`: one is; `refused`: both are, but they cannot be
    merged; `down`: none is. `active`, `backup`: the adapters to read; if the two are no pair, only one is named.
    `assigned`: the slot that is to be the active stream. `reason`: why the feed is not redundant. `numbers_from`: of a
    pair."""

    state: FeedState
    active: KnownAdapter | None
    backup: KnownAdapter | None
    assigned: Slot
    revision: int
    reason: str = ""
    numbers_from: str = ""


def status_of(registry: Registry, feed: str, now: float) -> FeedStatus:
    """`now`: monotonic seconds, of the registry's clock."""
    assigned, assignment = registry.preferred(feed), registry.assignment(feed)
    revision = 0 if assignment is None else assignment.revision
    other = other_slot(assigned)
    firsts, seconds = (registry.writers(feed, slot, now)[:_CANDIDATES] for slot in (assigned, other))
    if firsts and seconds:
        active, backup, decided = _best(firsts, seconds)
        if isinstance(decided, Paired):
            return FeedStatus("redundant", active, backup, assigned, revision, "", decided.numbers_from)
        return FeedStatus("refused", active, None, assigned, revision, decided.reason)
    if firsts or seconds:
        missing = other if firsts else assigned
        reason = f"no adapter that is alive writes the {missing} stream{_why(registry, feed, missing, now)}"
        return FeedStatus("single", (firsts or seconds)[0], None, assigned, revision, reason)
    reason = "no adapter that is alive writes to the feed"
    return FeedStatus("down", None, None, assigned, revision, reason)


def advice(registry: Registry, feed: str, now: float) -> list[str]:
    """What makes the feed less safe than it could be, and what to do, in sentences."""
    status = status_of(registry, feed, now)
    return list(_advice(registry, feed, status, now))


def _advice(registry: Registry, feed: str, status: FeedStatus, now: float) -> Iterator[str]:
    one, other = status.active, status.backup
    if one is not None and other is not None:
        if one.beat.machine == other.beat.machine:
            yield f"both adapters are on the machine {one.beat.machine}: move one, or its failure stops both streams"
        elif one.beat.zone and one.beat.zone == other.beat.zone:
            yield f"both adapters are in the zone {one.beat.zone}: move one, or its failure stops both streams"
    for adapter in registry.adapters(feed):
        if adapter.beat.state == "source_lost" and registry.is_alive(adapter, now):
            yield f"the adapter {adapter.name} does not reach its source{_because(adapter.beat.reason)}"


def _why(registry: Registry, feed: str, slot: Slot, now: float) -> str:
    """What is known of an adapter that should write to the slot."""
    for adapter in registry.adapters(feed):
        if adapter.beat.slot == slot:
            if adapter.beat.state == "gone":
                return f": the adapter {adapter.name} was stopped"
            if not registry.is_alive(adapter, now):
                return f": the adapter {adapter.name} is silent"
            return f": the adapter {adapter.name} is {adapter.beat.state}{_because(adapter.beat.reason)}"
    return ""


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _best(
    firsts: Sequence[KnownAdapter], seconds: Sequence[KnownAdapter]
) -> tuple[KnownAdapter, KnownAdapter, Paired | Refused]:
    """The two that are safest together: a pair, on different machines, in different zones; else the holders."""
    choices = [(one, other, _decided(one, other)) for one in firsts for other in seconds]
    return min(choices, key=lambda choice: _risks(*choice))


def _risks(one: KnownAdapter, other: KnownAdapter, decided: Paired | Refused) -> tuple[bool, bool, bool]:
    same_zone = bool(one.beat.zone) and one.beat.zone == other.beat.zone
    return isinstance(decided, Refused), one.beat.machine == other.beat.machine, same_zone


def _decided(one: KnownAdapter, other: KnownAdapter) -> Paired | Refused:
    try:
        return decide(one.beat.source, other.beat.source)
    except FeedSettingsError as error:
        return Refused(str(error))
