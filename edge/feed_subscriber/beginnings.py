"""New source streams wait a moment, so that they begin with the lower of both feeds' numbers (S3).

The merger begins a stream with the first copy that comes, and what is lower is late. If a feed has lost the first
messages of a stream, or the other one is a few milliseconds ahead, that would be the wrong beginning.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from feeds.held import MESSAGE_BYTES
from feeds.message import NUMBER_MAX, Feed, FeedMessage
from feeds.passed import PassedRecord

WAITING_MAX: Final = 1_000
"""Copies of one stream that wait; more begin it."""
STREAMS_MAX: Final = 1_000
"""Streams that wait; with more, the one that has waited longest begins."""


class WaitingCopy(NamedTuple):
    feed: Feed
    message: FeedMessage | PassedRecord


@dataclass(slots=True)
class _Waiting:
    since_s: float
    copies: list[WaitingCopy] = field(default_factory=list)
    feeds: set[Feed] = field(default_factory=set)
    bytes: int = 0


class Beginnings:
    """`wait_s` is how long a stream waits for the other feed; `bytes_max`: what all waiting copies may take together,
    overhead included. With more, the streams that have waited longest begin."""

    def __init__(self, wait_s: float, bytes_max: int) -> None:
        self._wait_s, self._bytes_max = wait_s, bytes_max
        self._waiting: dict[str, _Waiting] = {}

    def __contains__(self, stream: str) -> bool:
        return stream in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, feed: Feed, message: FeedMessage, now_s: float) -> None:
        """A copy of a stream that has not begun."""
        waiting = self._waiting.get(message.stream)
        if waiting is None:
            waiting = self._waiting[message.stream] = _Waiting(now_s)
        waiting.copies.append(WaitingCopy(feed, message))
        waiting.bytes += MESSAGE_BYTES + len(message.payload)
        waiting.feeds.add(feed)

    def add_passed(self, feed: Feed, record: PassedRecord) -> bool:
        """A feed's word about a stream that waits; whether it does."""
        waiting = self._waiting.get(record.stream)
        if waiting is not None:
            waiting.bytes += MESSAGE_BYTES
            waiting.copies.append(WaitingCopy(feed, record))
        return waiting is not None

    def due(self) -> float | None:
        """When the next stream begins at the latest."""
        return min((one.since_s + self._wait_s for one in self._waiting.values()), default=None)

    def pop_ready(self, now_s: float, expected: frozenset[Feed]) -> list[tuple[str, list[WaitingCopy]]]:
        """Streams that begin now, because all `expected` feeds have brought them, or they have waited long enough; the
        copies of each in the order to take them: the lowest first, the others as they came."""
        ready = list[str]()
        excess = sum(one.bytes for one in self._waiting.values()) - self._bytes_max
        for at, (stream, one) in enumerate(self._waiting.items()):
            if (
                expected <= one.feeds
                or now_s >= one.since_s + self._wait_s
                or len(one.copies) > WAITING_MAX
                or at < len(self._waiting) - STREAMS_MAX
                or excess > 0
            ):
                ready.append(stream)
                excess -= one.bytes
        return [(stream, _lowest_first(self._waiting.pop(stream).copies)) for stream in ready]


def _lowest_first(copies: list[WaitingCopy]) -> list[WaitingCopy]:
    lowest = min(range(len(copies)), key=lambda at: _place(copies[at].message))
    return [copies[lowest], *copies[:lowest], *copies[lowest + 1 :]]


def _place(message: FeedMessage | PassedRecord) -> tuple[int, int]:
    """Words are behind all messages."""
    return (message.sequence, message.part) if isinstance(message, FeedMessage) else (NUMBER_MAX + 1, 0)
