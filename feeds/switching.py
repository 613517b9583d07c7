"""When a gateway makes the other stream of a feed the active one without being asked (S1). Pure: time comes in.

Every gateway decides by itself, from the topic alone, and several may write an assignment with the same revision: the
first on the topic counts (:mod:`feeds.registry`). Nothing is lost by a switch too many or too late: both streams always
flow, and the assignment only says which of them a subscriber prefers.

A gateway must have followed a feed for `timeout_s` without a pause before it calls an adapter dead. Otherwise it would
switch each time when it starts, or when Kafka comes back and the beats of the backup are read first.
"""

from typing import Final, Literal, NamedTuple

from feeds.message import NUMBER_MAX
from feeds.registry import Registry
from feeds.registry_records import other_slot
from schemas.feed_words import Slot

_AFTER_S: Final = 1e-3


class SwitchRule(NamedTuple):
    """`failback`: whether to switch back once the adapter has been back for `failback_after_s`."""

    timeout_s: float
    failback: Literal["never", "when_back"]
    failback_after_s: float


class Watched(NamedTuple):
    """What a gateway has seen of a feed, monotonic seconds. `followed_since`: from then on beats have come without a
    pause; `held_since`: since when each slot has been held, by whomever; a slot that is not held is left out."""

    followed_since: float
    held_since: dict[Slot, float]


class Switch(NamedTuple):
    """The assignment to be written. `automatic` as in :class:`feeds.registry_records.Assignment`."""

    active: Slot
    revision: int
    reason: str
    automatic: bool


def due_switch(registry: Registry, feed: str, now: float, watched: Watched, rule: SwitchRule) -> Switch | None:
    """The switch that is due now, if any."""
    active = registry.preferred(feed)
    other, assignment = other_slot(active), registry.assignment(feed)
    revision = 0 if assignment is None else assignment.revision
    if registry.holder(feed, other, now) is None or revision >= NUMBER_MAX:
        return None
    if registry.holder(feed, active, now) is None:
        had = [one.name for one in registry.adapters(feed) if one.beat.slot == active]
        if not had or now - watched.followed_since < rule.timeout_s:
            return None
        reason = f"no adapter writes the {active} stream any more ({', '.join(had[:3])})"
        return Switch(other, revision + 1, reason[:1_000], automatic=True)
    if assignment is not None and assignment.automatic and rule.failback == "when_back":
        since = watched.held_since.get(other)
        if since is not None and now - since >= rule.failback_after_s:
            reason = f"the adapter of the {other} stream has been back for {rule.failback_after_s:g} s"
            return Switch(other, revision + 1, reason, automatic=False)
    return None


def next_look(registry: Registry, feed: str, now: float, watched: Watched, rule: SwitchRule) -> float | None:
    """When :func:`due_switch`, or who is alive, may change although nothing comes; monotonic seconds."""
    # A little later than the bound itself, which still counts as alive, whatever the rounding.
    times = [
        one.heard_at + rule.timeout_s + _AFTER_S
        for one in registry.adapters(feed)
        if one.heard_at is not None and registry.is_alive(one, now)
    ]
    since = (watched.followed_since + rule.timeout_s, *(s + rule.failback_after_s for s in watched.held_since.values()))
    times += [time + _AFTER_S for time in since]
    return min((time for time in times if time > now), default=None)
