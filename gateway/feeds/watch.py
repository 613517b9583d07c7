"""Watches feeds: who is alive, what has changed, and which switches and repairs are due. Pure: time comes in (S1).

A feed is looked at when a record changes something, and when the clock may: an adapter falls silent, a switch or
failback is due. A heartbeat that only says that its adapter is still alive costs no look.

Several gateways see the same, so each waits a random part of `_SPREAD` times the timeout before it writes, and looks
again: mostly one of them writes. Correctness does not depend on that.
"""

from random import Random
from typing import Final, NamedTuple

from feeds.brokering import FeedStatus, status_of
from feeds.registry import KnownAdapter
from feeds.registry_records import SLOTS, AdapterBeat, Assignment, RegistryKey, RegistryRecord
from feeds.switching import Switch, SwitchRule, Watched, due_switch, next_look
from gateway.feeds.changes import Difference, Seen, differences
from gateway.feeds.table import FeedTable
from schemas.feed_settings import FeedsSettings
from schemas.feed_words import Slot

_SPREAD: Final = 0.5
_RETRY: Final = 5.0
"""After so many timeouts a switch that was written and not read is written again."""


class Look(NamedTuple):
    """What a look at a feed has found."""

    feed: str
    status: FeedStatus
    changes: list[Difference]
    switch: Switch | None
    again: Assignment | None
    """An assignment to be written once more, because a loser was written behind it."""


class _Feed:
    """What is remembered of a feed."""

    __slots__ = ("followed_since", "heard_at", "held_since", "look_at", "seen", "write_at")

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self.heard_at = float("-inf")
        self.followed_since = float("inf")
        self.held_since: dict[Slot, float] = {}
        self.look_at: float | None = None
        self.write_at: float | None = None


class FeedWatch:
    """Owns what a gateway has seen of the feeds of `table`. `random` spreads the writes of gateways."""

    def __init__(self, table: FeedTable, settings: FeedsSettings, random: Random) -> None:
        self._table = table
        self._timeout_s = settings.timeout_s
        self._rule = SwitchRule(settings.timeout_s, settings.failback, settings.failback_after_s)
        self._random = random
        self._feeds: dict[str, _Feed] = {}

    def changes(self, key: RegistryKey, record: RegistryRecord | None, now: float) -> bool:
        """Whether a record that is about to be applied makes a look necessary at once; notes that it has come."""
        if key.kind == "adapter" and isinstance(record, AdapterBeat):
            feed = self._feeds.setdefault(key.feed, _Feed())
            if now - feed.heard_at > self._timeout_s:
                feed.followed_since = now
            feed.heard_at = now
            return self._differs(self._table.registry.adapter(key.feed, key.name), record, now)
        return key.kind in ("adapter", "assignment")

    def _differs(self, known: KnownAdapter | None, beat: AdapterBeat, now: float) -> bool:
        if known is None or not self._table.registry.is_alive(known, now):
            return True
        old = known.beat
        return (old.boot, old.slot, old.state, old.machine, old.zone, old.reason, old.source) != (
            *(beat.boot, beat.slot, beat.state, beat.machine, beat.zone, beat.reason, beat.source),
        )

    def due(self) -> float | None:
        """When :meth:`late` names a feed, monotonic seconds."""
        times = [t for one in self._feeds.values() for t in (one.look_at, one.write_at) if t is not None]
        return min(times, default=None)

    def late(self, now: float) -> list[str]:
        """The feeds to be looked at because of the time."""
        return [
            name
            for name, one in self._feeds.items()
            if (one.look_at is not None and one.look_at <= now) or (one.write_at is not None and one.write_at <= now)
        ]

    def look(self, name: str, now: float) -> Look:
        """Looks at a feed. What it says is to be written counts as written."""
        feed, registry = self._feeds.setdefault(name, _Feed()), self._table.registry
        status = status_of(registry, name, now)
        for slot in SLOTS:
            if registry.holder(name, slot, now) is None:
                feed.held_since.pop(slot, None)
            else:
                feed.held_since.setdefault(slot, now)
        watched = Watched(feed.followed_since, feed.held_since)
        switch = due_switch(registry, name, now, watched, self._rule)
        again = self._table.overwritten(name)
        if not self._may_write(feed, switch is not None or again is not None, now):
            switch = again = None
        feed.look_at = next_look(registry, name, now, watched, self._rule)
        adapters = {one.name: one for one in registry.adapters(name)}
        alive = frozenset(one.name for one in adapters.values() if registry.is_alive(one, now))
        seen, assignment = Seen(status, adapters, alive), registry.assignment(name)
        found = list(differences(feed.seen, seen, "" if assignment is None else assignment.reason))
        feed.seen = seen
        if not self._table.knows(name):
            del self._feeds[name]
        return Look(name, status, found, switch, again)

    def _may_write(self, feed: _Feed, is_due: bool, now: float) -> bool:
        """Whether to write now, or to look again after a random time."""
        if not is_due:
            feed.write_at = None
            return False
        if feed.write_at is None:
            feed.write_at = now + self._random.random() * _SPREAD * self._timeout_s
            return False
        if feed.write_at > now:
            return False
        feed.write_at = now + _RETRY * self._timeout_s
        return True
