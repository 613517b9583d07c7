"""`feed replay`: the log of a feed as Kafka still has it, merged as a subscriber would have, or one slot as it is (S3).

Times are the broker's append times: they order the records of both slots, and are the merger's clock. So a replay gives
the same lines each time, as long as the topic keeps the records.
"""

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

from feeds.merge import Merger
from feeds.merge_events import Delivered, Event, Late
from feeds.merge_inputs import Dead, Passed
from feeds.merge_settings import MergeSettings
from feeds.message import FEEDS, Feed, FeedMessage
from feeds.passed import PassedRecord
from jobs.feeds.feed_lines import event_line, message_line
from jobs.feeds.feed_log import Entry, FeedLog

_SETTINGS: Final = MergeSettings(reorder_ms=5_000, deadline_ms=60_000, recovers=False)
"""Both logs are there, so no gap is searched for: it waits until the other slot's copy had time to be appended."""


class Part(NamedTuple):
    """What to replay. `stream`: None for all. Bounds that are None are open; `to_…` is not included in times, and is in
    numbers."""

    stream: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    first: int | None = None
    last: int | None = None

    def has(self, message: FeedMessage) -> bool:
        is_of = self.stream in (None, message.stream)
        after = self.first is None or message.sequence >= self.first
        return is_of and after and (self.last is None or message.sequence <= self.last)


def raw(log: FeedLog, feed: Feed, part: Part) -> Iterator[str]:
    """The messages of a slot as they were appended, repeats included. Raises FeedCommandError."""
    for entry in _in_order(log, (feed,), part):
        if isinstance(entry.content, FeedMessage) and part.has(entry.content):
            yield message_line(feed, entry.content, appended_ms=entry.appended_ms)


def merged(log: FeedLog, part: Part) -> Iterator[str]:
    """The messages of both slots as one stream, and what was lost, recovered or different. Raises FeedCommandError."""
    merger, now_ms = Merger(_SETTINGS), 0.0
    for entry in _in_order(log, FEEDS, part):
        now_ms = max(now_ms, entry.appended_ms)
        yield from _lines(merger.decide(now_ms), part)
        match entry.content:
            case FeedMessage() as message if part.has(message):
                yield from _lines(merger.take(entry.feed, (message,), now_ms), part)
            case FeedMessage(stream, sequence) | PassedRecord(stream, sequence) if part.stream in (None, stream):
                # A message with another number than asked for only says how far its slot has come.
                through = sequence if part.last is None else min(sequence, part.last)
                yield from _lines(merger.apply(Passed(entry.feed, stream, through), now_ms), part)
    for feed in FEEDS:
        merger.apply(Dead(feed), now_ms)
    yield from _lines(merger.decide(now_ms + 2 * _SETTINGS.deadline_ms), part)


def _lines(events: list[Event], part: Part) -> Iterator[str]:
    for event in events:
        if isinstance(event, (Delivered, Late)) and not part.has(event.message):
            continue
        line = event_line(event)
        if line is not None:
            yield line


def _in_order(log: FeedLog, feeds: tuple[Feed, ...], part: Part) -> Iterator[Entry]:
    """The records of all partitions that are asked for, by append time; of one partition in the order of its log."""
    logs = [log.part(p, part.from_ms, part.to_ms) for feed in feeds for p in log.partitions_of(feed, part.stream)]
    return heapq.merge(*logs, key=lambda entry: entry.appended_ms)
