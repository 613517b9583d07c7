"""Whose adapters are alive, and which slot is the active stream, as the topic `feeds` tells (S1, S3, S6). Pure.

Times are those of :mod:`edge.feed_subscriber.reading_clock`, so an outage of the brokers declares nobody dead. A slot
of which no adapter was ever heard is not dead: perhaps nobody writes beats.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from edge.feed_subscriber.items import Switched
from feeds.message import FEEDS, Feed
from feeds.registry import Registry
from feeds.registry_records import SLOTS, RegistryKey, RegistryRecord, feed_of

_KINDS: Final = ("adapter", "assignment")
_AFTER_S: Final = 0.001  # an adapter is alive at its time-out, and dead after it


class SlotChange(NamedTuple):
    """`feed` is dead, or alive again; `item` says so to the application, with an ordinal that is to be set."""

    feed: Feed
    item: Switched


@dataclass(slots=True)
class _Slot:
    adapter: str = ""
    is_known: bool = False
    is_dead: bool = False


class Slots:
    """Of the feed named `feed`; `timeout_s`: an adapter without a beat for so long is dead; `adapters`: how many are
    remembered."""

    def __init__(self, feed: str, timeout_s: float, adapters: int) -> None:
        self._feed, self._timeout_s = feed, timeout_s
        self._registry = Registry(timeout_s, adapters, subscribers=1)
        self._slots = [_Slot() for _ in FEEDS]
        self._preferred: Feed | None = None

    def apply(self, key: RegistryKey, record: RegistryRecord | None, now_s: float | None) -> None:
        """A record of the topic; `now_s`: None for what was there before."""
        if key.feed == self._feed and key.kind in _KINDS:
            self._registry.apply(key, record, now_s)

    def changes(self, now_s: float) -> list[SlotChange]:
        """What has changed by now."""
        found = []
        for feed, slot in zip(FEEDS, self._slots, strict=True):
            holder = self._registry.holder(self._feed, SLOTS[feed], now_s)
            if holder is not None:
                has_changed = slot.is_dead or (slot.is_known and slot.adapter != holder.name)
                slot.adapter, slot.is_known, slot.is_dead = holder.name, True, False
                if has_changed:
                    found.append(_change(feed, "alive", holder.name))
            elif not slot.is_dead and now_s >= self._timeout_s and self._has_adapter(feed):
                slot.is_known = slot.is_dead = True
                found.append(_change(feed, "dead", slot.adapter))
        found += self._assigned()
        return found

    def due(self, now_s: float) -> float | None:
        """When an adapter may be dead."""
        alive = [
            one.heard_at + self._timeout_s + _AFTER_S
            for one in self._registry.adapters(self._feed)
            if one.heard_at is not None and self._registry.is_alive(one, now_s)
        ]
        if now_s < self._timeout_s and any(self._has_adapter(feed) for feed in FEEDS):
            alive.append(self._timeout_s)
        return min(alive, default=None)

    def is_alive(self, feed: Feed) -> bool:
        """Whether an adapter writes to the slot, for all that is known."""
        slot = self._slots[feed]
        return slot.is_known and not slot.is_dead

    def is_dead(self, feed: Feed) -> bool:
        return self._slots[feed].is_dead

    @property
    def preferred(self) -> Feed:
        """The slot that is the active stream."""
        return feed_of(self._registry.preferred(self._feed))

    def _has_adapter(self, feed: Feed) -> bool:
        return any(one.beat.slot == SLOTS[feed] for one in self._registry.adapters(self._feed))

    def _assigned(self) -> list[SlotChange]:
        before, self._preferred = self._preferred, self.preferred
        if before is None or before is self._preferred:
            return []
        assignment = self._registry.assignment(self._feed)
        reason = "" if assignment is None else assignment.reason
        slot = SLOTS[self._preferred]
        return [SlotChange(self._preferred, Switched(ordinal=0, slot=slot, what="assigned", reason=reason))]


def _change(feed: Feed, what: str, adapter: str) -> SlotChange:
    return SlotChange(feed, Switched(ordinal=0, slot=SLOTS[feed], what=what, adapter=adapter))  # type: ignore[arg-type]
