"""What the topic `feeds` says, as a gateway folds it: the registry, requests, and which assignment won. Pure (S1, S4).

Of several assignments with the same revision the first on the topic counts. The topic is compacted by key, which keeps
the last record: once the first is compacted away, a gateway that starts would take the loser. So whoever sees that the
last record is not the one that counts writes the latter again (`overwritten`).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from feeds.errors import FeedRecordError
from feeds.registry import Registry
from feeds.registry_records import (
    AdministrativeRequest,
    AdministrativeResult,
    AnnouncementRecord,
    Assignment,
    Kind,
    RegistryKey,
    RegistryRecord,
)
from schemas.feed_settings import FeedsSettings

_OUTCOMES: Final = 1_000
"""Assignments of which it is remembered whether they won, for those who have written them and wait."""

EXCHANGE: Final[tuple[Kind, ...]] = ("request", "announcement", "answer", "result")
"""The kinds of records about one administrative message; they share an id."""


class Exchange:
    """An administrative message that was asked for. `seen_at`: when the request was read, and then its result, in
    monotonic seconds; None: before the gateway started. `place`: the number and part that were announced for it."""

    __slots__ = ("kinds", "place", "request", "result", "seen_at")

    def __init__(self, seen_at: float | None) -> None:
        self.seen_at = seen_at
        self.request: AdministrativeRequest | None = None
        self.result: AdministrativeResult | None = None
        self.place = 0, 0
        self.kinds: set[Kind] = set()
        """Of the records that are on the topic."""

    @property
    def is_promised(self) -> bool:
        """An adapter has announced it and not ended it. It may wait for its number as long as the source is silent, and
        only these records tell an adapter that starts again of it."""
        return "announcement" in self.kinds and "result" not in self.kinds


class Applied(NamedTuple):
    """What a record has changed. `displaced`: entries forgotten because of a limit; `won`: whether an assignment
    counts."""

    displaced: int = 0
    won: bool | None = None


class FeedTable:
    """Owns what is known."""

    def __init__(self, settings: FeedsSettings) -> None:
        self._settings = settings
        self.registry = Registry(settings.timeout_s, settings.adapters, settings.subscribers)
        self._known = set(settings.names)
        self._exchanges: dict[tuple[str, str], Exchange] = {}  # the oldest first
        self._last: dict[str, Assignment] = {}
        self._outcomes: dict[int, bool] = {}

    def feeds(self) -> list[str]:
        """Those of the configuration, and those of which there are records; ordered."""
        return sorted({*self._settings.names, *self.registry.feeds()})

    def knows(self, feed: str) -> bool:
        return feed in self._settings.names or self.registry.knows(feed)

    def accept(self, feed: str) -> None:
        """To be called before a record of the feed is applied. Raises FeedRecordError for one feed too many."""
        if feed not in self._known:
            self._known = set(self.feeds()) | {feed for feed, _ in self._exchanges}
            if len(self._known) >= self._settings.feeds:
                raise FeedRecordError(f"feed {feed!r} is one more than feeds.feeds = {self._settings.feeds}")
            self._known.add(feed)

    def apply(self, key: RegistryKey, record: RegistryRecord | None, now: float | None, offset: int) -> Applied:
        """Takes a record; `now` as for :meth:`feeds.registry.Registry.apply`."""
        if key.kind in EXCHANGE:
            return Applied(self._apply_exchange(key, record, now))
        displaced = self.registry.apply(key, record, now)
        if key.kind != "assignment":
            return Applied(displaced)
        if not isinstance(record, Assignment):
            self._last.pop(key.feed, None)
            return Applied()
        self._last[key.feed] = record
        won = self.registry.assignment(key.feed) is record
        self._outcomes[offset] = won
        if len(self._outcomes) > _OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]
        return Applied(won=won)

    def has_won(self, offset: int) -> bool | None:
        """Whether the assignment at this offset of the topic counts; None if it has not been read."""
        return self._outcomes.get(offset)

    def overwritten(self, feed: str) -> Assignment | None:
        """The assignment that counts, if it is not the last on the topic and has to be written again."""
        counts = self.registry.assignment(feed)
        return None if counts == self._last.get(feed) else counts

    def exchange(self, feed: str, name: str) -> Exchange | None:
        return self._exchanges.get((feed, name))

    @property
    def requests(self) -> int:
        """Administrative messages that are remembered."""
        return len(self._exchanges)

    def subscribers(self, now: float) -> Counter[str]:
        """How many each feed has; those that have lapsed do not count. Takes a moment if there are many."""
        return Counter(one.feed for one in self.registry.subscribers(now))

    def removable(self, now: float, since: float, grace_s: float) -> Iterator[RegistryKey]:
        """Keys of records that nobody needs any more; `since`: when this gateway began to follow the topic."""
        for one in self.registry.lapsed(now, since, grace_s):
            yield RegistryKey("subscriber", one.feed, one.name)
        for (feed, name), exchange in self._exchanges.items():
            if exchange.is_promised:
                continue
            seen_at = since if exchange.seen_at is None else exchange.seen_at
            if now - seen_at > self._settings.request_kept_s:
                for kind in EXCHANGE:
                    if kind in exchange.kinds:
                        yield RegistryKey(kind, feed, name)

    def abandoned(self, now: float, since: float) -> Iterator[tuple[RegistryKey, AdministrativeResult]]:
        """Results to be written for messages that were announced and never ended, of feeds of which no adapter has been
        heard for `abandoned_s`. `since` as for :meth:`removable`."""
        limit_s = self._settings.abandoned_s
        for (feed, name), exchange in self._exchanges.items():
            if not exchange.is_promised:
                continue
            heard = (one.heard_at for one in self.registry.adapters(feed) if one.heard_at is not None)
            if now - max(since, exchange.seen_at or since, *heard) > limit_s:
                after, part = exchange.place
                reason = f"no adapter of the feed has been heard for {limit_s:g} s; if none has sent it, none will"
                result = AdministrativeResult(outcome="unknown", reason=reason, after=after, part=part)
                yield RegistryKey("result", feed, name), result

    def _apply_exchange(self, key: RegistryKey, record: RegistryRecord | None, now: float | None) -> int:
        place = key.feed, key.name
        exchange = self._exchanges.get(place)
        if record is None:
            if exchange is not None:
                exchange.kinds.discard(key.kind)
                if not exchange.kinds:
                    del self._exchanges[place]
            return 0
        if exchange is None:
            exchange = self._exchanges[place] = Exchange(now)
        exchange.kinds.add(key.kind)
        if isinstance(record, AdministrativeRequest):
            exchange.request = record
        elif isinstance(record, AnnouncementRecord):
            exchange.place = record.after, record.part
        elif isinstance(record, AdministrativeResult):
            exchange.result, exchange.seen_at = record, now
        if len(self._exchanges) <= self._settings.requests:
            return 0
        del self._exchanges[next(iter(self._exchanges))]
        return 1
