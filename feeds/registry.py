"""The adapters, assignments and subscribers of all feeds, as a fold over the topic `feeds` (S1). Pure: time comes in.

Adapters, gateways and subscribers all compute it, so they agree on what the records say. What is there before a reader
starts comes without a time; an adapter counts as alive once its next beat is there. An adapter is alive while beats
arrive, by the reader's own monotonic clock; no clock of another machine is compared.

A **slot** is held by one adapter: of those that are alive and neither wait nor were refused, the one with the lowest
(boot, name). Another one waits until the holder is gone. Two adapters that write to a slot at once, because neither
knows of the other yet, do no harm: the merger drops copies by number.
"""

from collections.abc import Iterator
from typing import NamedTuple

from feeds.message import NUMBER_MAX
from feeds.pairing import Paired, Refused, decide
from feeds.registry_records import SLOTS, AdapterBeat, Assignment, RegistryKey, RegistryRecord, Subscription
from schemas.feed_words import HOLDING, Slot


class KnownAdapter(NamedTuple):
    """An adapter by its newest beat; `heard_at`: when that came, monotonic seconds; None: before the reader started."""

    feed: str
    name: str
    beat: AdapterBeat
    heard_at: float | None


class KnownSubscriber(NamedTuple):
    """A subscriber by its newest record; `heard_at` as of adapters."""

    feed: str
    name: str
    record: Subscription
    heard_at: float | None


class Registry:
    """`timeout_s`: an adapter without a new beat for so long is dead. `adapters`, `subscribers`: how many of each are
    remembered, of all feeds; beyond that the one not heard of for longest is forgotten."""

    def __init__(self, timeout_s: float, adapters: int, subscribers: int) -> None:
        self._timeout_s = timeout_s
        self._adapters_max, self._subscribers_max = adapters, subscribers
        self._adapters: dict[tuple[str, str], KnownAdapter] = {}  # the one not heard of for longest is first
        self._names: dict[str, set[str]] = {}  # of the adapters of a feed
        self._subscribers: dict[tuple[str, str], KnownSubscriber] = {}
        self._assignments: dict[str, Assignment] = {}

    def apply(self, key: RegistryKey, record: RegistryRecord | None, now: float | None) -> int:
        """Takes a record; None removes. `now`: monotonic seconds, None for what was on the topic before. Kinds that
        are none of its business are ignored. Returns how many entries were displaced."""
        match key.kind:
            case "adapter":
                return self._apply_adapter(key, record, now)
            case "subscriber":
                return self._apply_subscriber(key, record, now)
            case "assignment":
                self._apply_assignment(key.feed, record)
        return 0

    def feeds(self) -> list[str]:
        """The feeds of which anything is known, ordered."""
        return sorted(self._names.keys() | self._assignments.keys())

    def knows(self, feed: str) -> bool:
        """Whether it is one of them."""
        return feed in self._names or feed in self._assignments

    def adapters(self, feed: str) -> list[KnownAdapter]:
        """All that are known of a feed, ordered by name."""
        return [self._adapters[feed, name] for name in sorted(self._names.get(feed, ()))]

    def adapter(self, feed: str, name: str) -> KnownAdapter | None:
        return self._adapters.get((feed, name))

    def boot_after(self, feed: str, name: str, clock_us: int) -> int:
        """The `boot` of an adapter that starts now: its clock's time, but above what was heard of that name, as the
        clock may have been set back. Otherwise its beats would be older than those of the process before it."""
        known = self.adapter(feed, name)
        return clock_us if known is None or known.beat.boot <= clock_us else min(known.beat.boot + 1, NUMBER_MAX)

    def is_alive(self, adapter: KnownAdapter, now: float) -> bool:
        """Whether beats still come, and it has not said that it stops."""
        is_heard = adapter.heard_at is not None and now - adapter.heard_at <= self._timeout_s
        return is_heard and adapter.beat.state != "gone"

    def writers(self, feed: str, slot: Slot, now: float) -> list[KnownAdapter]:
        """The adapters that are alive and write to the slot, its holder first: more than one until the others know of
        it."""
        found = [
            one
            for one in self.adapters(feed)
            if one.beat.slot == slot and one.beat.state in HOLDING and self.is_alive(one, now)
        ]
        return sorted(found, key=lambda one: (one.beat.boot, one.name))

    def holder(self, feed: str, slot: Slot, now: float) -> KnownAdapter | None:
        """The adapter that writes to the slot; None if none that is alive does."""
        return next(iter(self.writers(feed, slot, now)), None)

    def due(self, feed: str) -> float | None:
        """When the next of the feed's adapters that may be alive is dead unless a beat comes, monotonic seconds."""
        heard = [one.heard_at for one in self.adapters(feed) if one.heard_at is not None and one.beat.state != "gone"]
        return min(heard) + self._timeout_s if heard else None

    def assignment(self, feed: str) -> Assignment | None:
        """What the administration service has assigned; None if it never did."""
        return self._assignments.get(feed)

    def preferred(self, feed: str) -> Slot:
        """The slot that is the active stream: as assigned, or the first."""
        found = self._assignments.get(feed)
        return SLOTS[0] if found is None else found.active

    def pair(self, feed: str, now: float) -> Paired | Refused | None:
        """Whether the two holders can be merged; None unless both slots are held. Raises FeedSettingsError if a source
        is not possible."""
        holders = [self.holder(feed, slot, now) for slot in SLOTS]
        one, other = holders
        return None if one is None or other is None else decide(one.beat.source, other.beat.source)

    def subscribers(self, now: float) -> Iterator[KnownSubscriber]:
        """Of all feeds, those whose record has not lapsed."""
        for one in list(self._subscribers.values()):
            if one.heard_at is not None and now - one.heard_at <= one.record.ttl_s:
                yield one

    def subscriber(self, feed: str, name: str) -> KnownSubscriber | None:
        """By its newest record, lapsed or not."""
        return self._subscribers.get((feed, name))

    def lapsed(self, now: float, since: float, grace_s: float) -> Iterator[KnownSubscriber]:
        """Those that lapsed more than `grace_s` ago: their records can be removed. `since`: when the reader started,
        which counts for what was on the topic before."""
        for one in self._subscribers.values():
            heard_at = since if one.heard_at is None else one.heard_at
            if now - heard_at > one.record.ttl_s + grace_s:
                yield one

    def _apply_adapter(self, key: RegistryKey, record: RegistryRecord | None, now: float | None) -> int:
        place = key.feed, key.name
        known = self._adapters.get(place)
        if not isinstance(record, AdapterBeat):
            self._forget_adapter(place)
            return 0
        if known is not None and (record.boot, record.seq) <= (known.beat.boot, known.beat.seq):
            return 0
        self._adapters.pop(place, None)
        self._adapters[place] = KnownAdapter(*place, record, now)
        self._names.setdefault(key.feed, set()).add(key.name)
        if len(self._adapters) <= self._adapters_max:
            return 0
        self._forget_adapter(next(iter(self._adapters)))
        return 1

    def _forget_adapter(self, place: tuple[str, str]) -> None:
        feed, name = place
        if self._adapters.pop(place, None) is not None:
            names = self._names[feed]
            names.remove(name)
            if not names:
                del self._names[feed]

    def _apply_subscriber(self, key: RegistryKey, record: RegistryRecord | None, now: float | None) -> int:
        place = key.feed, key.name
        self._subscribers.pop(place, None)
        if not isinstance(record, Subscription):
            return 0
        self._subscribers[place] = KnownSubscriber(*place, record, now)
        if len(self._subscribers) <= self._subscribers_max:
            return 0
        del self._subscribers[next(iter(self._subscribers))]
        return 1

    def _apply_assignment(self, feed: str, record: RegistryRecord | None) -> None:
        known = self._assignments.get(feed)
        if not isinstance(record, Assignment):
            self._assignments.pop(feed, None)
        elif known is None or record.revision > known.revision:
            self._assignments[feed] = record
