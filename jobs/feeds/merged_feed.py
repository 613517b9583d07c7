"""One stream of both slots of a feed: the merger, and the searches in the other slot's log that it asks for (S3).

Pure: time comes in, and what is to be read from a log is asked for and handed in. Where to begin a search: some time
before the broker appended the last message of the source stream that was in order. The two slots are appended at nearly
the same time, so what is missing is not much older.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from feeds.merge import Merger
from feeds.merge_events import Delivered, Event, Lost, Recover
from feeds.merge_inputs import Alive, Copy, Dead, Passed, Searched
from feeds.merge_settings import MergeSettings
from feeds.message import Feed, FeedMessage
from feeds.passed import PassedRecord
from jobs.feeds.feed_log import Entry

_BEFORE_MS: Final = 30_000
_STREAMS: Final = 10_000
_AGAIN_MS: Final = 50.0
"""A log that does not reach far enough is searched again after so long."""


class Search(NamedTuple):
    """What to search in a log: `asked`, from this append time on."""

    asked: Recover
    from_ms: int


class MergedFeed:
    """Times are milliseconds of one monotonic clock, but for append times."""

    def __init__(self, settings: MergeSettings) -> None:
        self._merger = Merger(settings)
        self._appended_ms: dict[str, int] = {}  # of the last message in order, by source stream
        self._searches: dict[Recover, float] = {}  # and when to search
        self._first_ms: int | None = None
        self._last_ms = 0
        self.malformed = 0
        """Records that are not valid."""

    def take(self, entries: Iterable[Entry], now_ms: float) -> list[Event]:
        """Records in the order in which they were read."""
        events: list[Event] = []
        for feed, content, appended_ms in entries:
            self._first_ms = appended_ms if self._first_ms is None else self._first_ms
            self._last_ms = max(self._last_ms, appended_ms)
            match content:
                case FeedMessage() as message:
                    found = self._merger.take(feed, (message,), now_ms)
                    if any(isinstance(event, Delivered) for event in found):
                        self._note(message.stream, appended_ms)
                    events += found
                case PassedRecord() as word:
                    events += self._merger.apply(Passed(feed, word.stream, word.sequence), now_ms)
                case None:
                    self.malformed += 1
        return self._taken(events, now_ms)

    def late(self, now_ms: float) -> list[Event]:
        """What the timer decides."""
        return self._taken(self._merger.decide(now_ms), now_ms)

    def due_ms(self) -> float | None:
        """When `late` or `searches` has something."""
        times = [*self._searches.values(), *([] if (due := self._merger.due_ms()) is None else [due])]
        return min(times, default=None)

    def searches(self, now_ms: float) -> Iterator[Search]:
        """What to search now; the caller answers each with `searched`. What has come meanwhile is not searched for."""
        for asked, at_ms in list(self._searches.items()):
            if at_ms > now_ms:
                continue
            if not self._merger.is_missing(asked.stream, asked.first, asked.last):
                del self._searches[asked]
            else:
                yield Search(asked, max(0, self._appended_ms.get(asked.stream, 0) - _BEFORE_MS))

    def searched(self, asked: Recover, copies: Iterable[FeedMessage], is_all: bool, now_ms: float) -> list[Event]:
        """What the log has of the numbers; `is_all`: it reaches beyond them, otherwise it is searched again."""
        events: list[Event] = []
        for message in copies:
            events += self._merger.apply(Copy(asked.feed, message, from_log=True), now_ms)
        if is_all:
            self._searches.pop(asked, None)
            events += self._merger.apply(Searched(asked.feed, asked.stream, asked.first, asked.last), now_ms)
        elif asked in self._searches:
            self._searches[asked] = now_ms + _AGAIN_MS
        return self._taken(events, now_ms)

    @property
    def join_ms(self) -> int | None:
        """From which append time on a slot that is joined now must be read, so that it has what the other one has had
        last; None if nothing has come yet."""
        return None if self._first_ms is None else max(self._first_ms, self._last_ms - _BEFORE_MS)

    def is_alive(self, feed: Feed, now_ms: float, *, alive: bool) -> None:
        """Whether an adapter writes to the slot."""
        self._merger.apply(Alive(feed) if alive else Dead(feed), now_ms)

    def _forget(self, lost: Lost) -> None:
        """It need not be searched any more."""
        for asked in list(self._searches):
            if asked.stream == lost.stream and asked.last <= lost.last:
                del self._searches[asked]

    def _note(self, stream: str, appended_ms: int) -> None:
        if stream in self._appended_ms or len(self._appended_ms) < _STREAMS:
            self._appended_ms[stream] = appended_ms

    def _taken(self, events: list[Event], now_ms: float) -> list[Event]:
        for event in events:
            if isinstance(event, Recover):
                self._searches[event] = now_ms
            elif isinstance(event, Lost):
                self._forget(event)
        return events
