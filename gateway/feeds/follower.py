"""Follows the topic `feeds`: applies its records, looks at feeds when something changes or the time has come, and
writes what is due: switches, repairs, results of abandoned messages, and the removal of old records (S1, S4).

Whoever may write to the topic may write anything: a record that is not valid is counted and skipped.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import structlog

from feeds.registry_records import Assignment, Kind, RegistryKey, decode
from gateway.bus import Bus
from gateway.errors import BusError
from gateway.feeds.answers import feed_state
from gateway.feeds.events import FeedEvents
from gateway.feeds.table import FeedTable
from gateway.feeds.watch import FeedWatch, Look
from gateway.record import Record
from gateway.skipped_records import SkippedRecords
from schemas.errors import RecordError
from schemas.events import Event, encode
from schemas.feed_api import FeedChange
from schemas.feed_settings import FeedsSettings

_CLEAN_EVERY_S: Final = 30.0
_REMOVED_AT_ONCE: Final = 200
_GRACE_S: Final = 60.0
"""A subscriber's record is removed only so long after it has lapsed, so that no gateway removes one just renewed."""

log = structlog.get_logger(__name__)


class FeedFollower:
    """Owns the table of feeds and its events. `name` is the gateway's; `now` gives monotonic seconds, `clock` seconds
    since the epoch."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        settings: FeedsSettings,
        name: str,
        now: Callable[[], float],
        clock: Callable[[], float],
        counts: Counter[str],
        random: Random | None = None,
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._now = now
        self._clock = clock
        self._counts = counts
        self._by = f"gateway {name}"
        self._random = random or Random()
        self.table = FeedTable(settings)
        self.events = FeedEvents(settings.events_kept)
        self._watch = FeedWatch(self.table, settings, self._random)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._cleaner: asyncio.TimerHandle | None = None
        self._decided: dict[int, asyncio.Future[bool]] = {}
        self._unread = set[RegistryKey]()
        self._started_at = now()
        self._skipped = SkippedRecords("feeds", counts, "feed_records_skipped", now)

    async def start(self) -> None:
        """Returns once the table has what was on the topic; what comes later follows. Raises BusError."""
        ends = await self._bus.read(self._topic, {0: 0}, self._restore)
        self._started_at = self._now()
        for feed in self.table.feeds():
            self._watch.look(feed, self._started_at)
        self._bus.follow({(self._topic, 0): ends[0]}, self._take)
        self._arm()
        self._clean_later()

    def stop(self) -> None:
        """Writes nothing any more, and ends all waits."""
        for timer in (self._timer, self._cleaner):
            if timer is not None:
                timer.cancel()
        self._timer = self._cleaner = None
        self.events.wake_all()

    def write(self, key: RegistryKey, record: Event | None) -> asyncio.Future[int]:
        """Writes a record; None removes the key. The result is its offset, or BusError."""
        stored: asyncio.Future[int] = self._loop.create_future()
        value = None if record is None else encode(record)
        if record is not None:
            self._unread.add(key)
        self._bus.produce(self._topic, 0, key.encode(), value, None, partial(self._stored, stored, key))
        return stored

    def unread(self, kind: Kind) -> list[RegistryKey]:
        """Of records of a kind that this gateway has written, those that it has not read back: the table lacks them."""
        return [key for key in self._unread if key.kind == kind]

    async def decided(self, offset: int) -> bool:
        """Whether the assignment that is at this offset counts; returns once it has been read."""
        won = self.table.has_won(offset)
        if won is not None:
            return won
        waiting: asyncio.Future[bool] = self._loop.create_future()
        self._decided[offset] = waiting
        try:
            return await waiting
        finally:
            self._decided.pop(offset, None)

    def _stored(self, stored: asyncio.Future[int], key: RegistryKey, error: Any, record: Record) -> None:
        if error is not None:
            self._counts["feed_records_refused"] += 1
            self._unread.discard(key)
        if stored.done():
            return
        if error is None:
            stored.set_result(record.offset() or 0)
        else:
            stored.set_exception(BusError(f"Kafka refused a record on {self._topic}: {error.str()}"))
            stored.exception()  # it counts as retrieved: not everybody waits

    def _take(self, records: list[Record]) -> None:
        now, changed = self._now(), dict[str, None]()
        for record in records:
            feed = self._apply(record, now)
            if feed:
                changed[feed] = None
        for feed in changed:
            self._look(feed, now)
        self._arm()

    def _restore(self, record: Record) -> None:
        self._apply(record, None)

    def _apply(self, record: Record, now: float | None) -> str:
        """Returns the feed to be looked at, "" for none."""
        offset = record.offset() or 0
        try:
            key, content = decode(record.key(), record.value())
            self._unread.discard(key)
            if content is not None:
                self.table.accept(key.feed)
            changes = now is not None and self._watch.changes(key, content, now)
            applied = self.table.apply(key, content, now, offset)
        except RecordError as error:
            self._skipped.skip(offset, error)
            return ""
        self._counts["feed_entries_forgotten"] += applied.displaced
        if applied.won is not None and now is not None:
            self._counts["feed_switches" if applied.won else "feed_switches_lost"] += 1
            waiting = self._decided.pop(offset, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(applied.won)
        return key.feed if changes else ""

    def _look(self, feed: str, now: float) -> None:
        look = self._watch.look(feed, now)
        if look.switch is not None:
            revision, reason = look.switch.revision, look.switch.reason
            log.info("switches a feed", feed=feed, active=look.switch.active, revision=revision, reason=reason)
            self.write(RegistryKey("assignment", feed), self._assignment(look))
        elif look.again is not None:
            self._counts["feed_assignments_repeated"] += 1
            self.write(RegistryKey("assignment", feed), look.again)
        if look.changes:
            state = feed_state(self.table, feed, look.status, self.table.subscribers(now)[feed], now)
            at_us = int(self._clock() * 1e6)
            for kind, adapter, reason in look.changes:
                change = FeedChange(kind=kind, at_us=at_us, feed=state, adapter=adapter, reason=reason)
                self.events.add(change)
        if not self.table.knows(feed):
            self.events.forget(feed)

    def _assignment(self, look: Look) -> Assignment:
        assert look.switch is not None
        active, revision, reason, automatic = look.switch
        at_us = int(self._clock() * 1e6)
        return Assignment(
            active=active, revision=revision, reason=reason, by=self._by, at_us=at_us, automatic=automatic
        )

    def _arm(self) -> None:
        """Looks again when the first feed is due."""
        if self._timer is not None:
            self._timer.cancel()
        due = self._watch.due()
        self._timer = None if due is None else self._loop.call_later(max(0.0, due - self._now()), self._late)

    def _late(self) -> None:
        now = self._now()
        for feed in self._watch.late(now):
            self._look(feed, now)
        self._arm()

    def _clean_later(self) -> None:
        self._cleaner = self._loop.call_later(_CLEAN_EVERY_S * (1 + self._random.random()), self._clean)

    def _clean(self) -> None:
        """Ends what adapters have abandoned, and removes old records. Other gateways do so too; a record that is
        removed twice is removed."""
        now, removed = self._now(), 0
        for key, result in list(self.table.abandoned(now, self._started_at))[:_REMOVED_AT_ONCE]:
            log.warning("gives up an administrative message", feed=key.feed, id=key.name, reason=result.reason)
            self.write(key, result)
            self._counts["feed_requests_abandoned"] += 1
        for key in list(self.table.removable(now, self._started_at, _GRACE_S))[:_REMOVED_AT_ONCE]:
            self.write(key, None)
            removed += 1
        self._counts["feed_records_removed"] += removed
        self._clean_later()
