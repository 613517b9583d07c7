"""`feed subscribe`: registers at a gateway, reads both slots from Kafka, prints one stream (S1, S3).

A thread asks the gateway: it renews, and hears of adapters that die and of switches. While no gateway answers, reading
goes on with what was known: both streams are on Kafka, whoever administers them.
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from feeds.merge_events import Delivered, Event, Late
from feeds.message import Feed
from feeds.registry_records import feed_of
from jobs.errors import FeedCommandError
from jobs.feeds.feed_api import FeedApi
from jobs.feeds.feed_lines import event_line, feed_line
from jobs.feeds.feed_log import BATCH, FeedLog
from jobs.feeds.merged_feed import MergedFeed
from schemas.feed_api import FeedDetail
from schemas.feed_words import HOLDING, SubscriberMode

_POLL_S: Final = 0.1
_ASK_S: Final = 0.5


class Plan(NamedTuple):
    """Which slots to read, and which of them somebody writes to."""

    read: frozenset[Feed]
    alive: frozenset[Feed]


def plan_of(detail: FeedDetail, mode: SubscriberMode) -> Plan:
    """Of two streams that are no pair only the active one is read. A cold subscriber reads the active one; it asks the
    log of the other for what is missing. Without an active stream the one that was assigned is read."""
    active = feed_of(detail.active.slot if detail.active is not None else detail.assignment.active)
    alive = frozenset(feed_of(one.slot) for one in detail.adapters if one.alive and one.state in HOLDING)
    if detail.state == "refused":
        return Plan(frozenset({active}), frozenset({active}))
    return Plan(frozenset({active} if mode == "cold" else Feed), alive)


class GatewayThread:
    """Asks the gateway about the feed, and renews the subscription, until `stop`. `found` has each answer, or why there
    is none."""

    def __init__(self, api: FeedApi, feed: str, name: str, mode: SubscriberMode, renew_s: float) -> None:
        self._api, self._feed, self._name, self._mode, self._renew_s = api, feed, name, mode, renew_s
        self.found: queue.SimpleQueue[FeedDetail | FeedCommandError] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed-gateway", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        renew_at = time.monotonic() + self._renew_s
        while not self._stopping.wait(_ASK_S):
            try:
                if time.monotonic() >= renew_at:
                    self._api.subscribe(self._feed, self._name, self._mode)
                    renew_at = time.monotonic() + self._renew_s
                self.found.put(self._api.feed(self._feed))
            except FeedCommandError as error:
                self.found.put(error)


class Subscribing:
    """Reads `log` into `merged` and writes lines, up to and including `most` messages; `warn` gets sentences for
    people."""

    def __init__(
        self,
        log: FeedLog,
        merged: MergedFeed,
        write: Callable[[str], None],
        warn: Callable[[str], None],
        mode: SubscriberMode,
        most: int | None = None,
    ) -> None:
        self._log, self._merged, self._write, self._warn, self._mode = log, merged, write, warn, mode
        self._most = most
        self._plan: Plan | None = None
        self._last_line = ""
        self._is_answering = True
        self._messages = 0
        self._counts: Counter[str] = Counter()

    @property
    def is_done(self) -> bool:
        """It has written as many messages as it should."""
        return self._messages == self._most

    def learn(self, found: FeedDetail | FeedCommandError) -> None:
        """What the gateway says of the feed, or that it says nothing. Raises FeedCommandError."""
        if isinstance(found, FeedCommandError):
            if self._is_answering:
                self._warn(f"{found}; reading goes on")
            self._is_answering = False
            return
        self._is_answering = True
        plan = plan_of(found, self._mode)
        if self._plan is None or plan.read != self._plan.read:
            self._log.follow(plan.read, self._merged.join_ms)
        for feed in Feed:
            self._merged.is_alive(feed, _now_ms(), alive=feed in plan.alive)
        self._plan = plan
        active, backup = (None if place is None else place.slot for place in (found.active, found.backup))
        line = feed_line(found.state, active, backup, found.reason)
        if line != self._last_line:
            self._last_line = line
            self._write(line)

    def step(self) -> None:
        """Reads what has come, waits a moment if nothing has, and lets the timer decide. Raises FeedCommandError."""
        due_ms, before_ms = self._merged.due_ms(), _now_ms()
        wait_s = _POLL_S if due_ms is None else min(_POLL_S, max(0.0, (due_ms - before_ms) / 1000))
        entries = self._log.poll(wait_s)
        now_ms = _now_ms()
        self._show(self._merged.take(entries, now_ms))
        if len(entries) < BATCH:  # otherwise more waits unread, and would look like a gap
            self._show(self._merged.late(now_ms))
            for asked, from_ms in self._merged.searches(now_ms):
                copies, is_all = self._log.search(asked.feed, asked.stream, asked.first, asked.last, from_ms)
                self._show(self._merged.searched(asked, copies, is_all, _now_ms()))

    def summary(self) -> str:
        """What has come so far, in one sentence."""
        counts = self._counts | Counter(malformed=self._merged.malformed)
        names = ("delivered", "late", "duplicate", "recovered", "lost", "different", "malformed")
        return ", ".join(f"{counts[name]} {name}" for name in names if counts[name] or name == "delivered")

    def _show(self, events: Iterable[Event]) -> None:
        for event in events:
            if self.is_done:
                break
            self._counts[type(event).__name__.lower()] += 1
            line = event_line(event)
            if line is not None:
                self._write(line)
                self._messages += isinstance(event, (Delivered, Late))


def _now_ms() -> float:
    return time.monotonic() * 1000
