"""Makes what an adapter writes of what its source brings: numbers, stamps, administrative messages (S2, S4). Pure.

Each message keeps its place within its source stream. A source without numbers is numbered here; that is for one
adapter alone (:mod:`feeds.pairing`). A number that will bring no message, because the source says so or its frame is
malformed, becomes a `passed` record, if it is the next one. Beyond a gap none is needed: a later number says the same.
"""

from collections.abc import Iterable

from edge.feeds.adapter.administration import Administration
from edge.feeds.adapter.resume import LogFold, Outgoing, Repeated
from edge.feeds.formats.moldudp64 import Downstream, EndOfSession, Heartbeat
from edge.feeds.source import Found, Malformed, SourceMessage
from feeds.message import NUMBER_MAX, FeedMessage
from feeds.passed import PassedRecord
from feeds.registry_records import STREAMS_IN_BEAT, StreamPosition
from feeds.synchronise import Announcement


class Counts:
    """What has happened since the adapter started. Only :class:`Composer` and sources change them."""

    def __init__(self) -> None:
        self.messages = 0
        self.malformed = 0
        self.backwards = 0
        """Messages with a number that is not above all before it in its source stream."""
        self.refused = 0
        """Messages of one source stream more than allowed, or with numbers beyond the highest possible."""
        self.dropped = 0
        """Messages for which there was no space, from a source that does not wait."""
        self.datagrams_lost = 0
        """Datagrams that the kernel dropped, because they were not read in time."""

    def __str__(self) -> str:
        """For a log line."""
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in vars(self).items())


class Composer:
    """`log`: what the feed's log had at the start; `repeated`: what the source brings again."""

    def __init__(
        self,
        adapter: str,
        log: LogFold,
        repeated: Repeated,
        administration: Administration,
        counts: Counts,
        streams: int,
    ) -> None:
        self._adapter, self._administration, self._counts = adapter, administration, counts
        self._streams_max = streams
        self.last = dict(log.highest)
        """The highest number of each source stream that was written."""
        self._highest = {**log.elsewhere}
        for stream, number in log.highest.items():
            self._highest[stream] = max(number, self._highest.get(stream, -1))
        self._written = log.written
        self._repeated: Repeated | None = repeated or None
        self._recent: dict[str, StreamPosition] = {}

    @property
    def highest(self) -> dict[str, int]:
        """The highest number of each source stream, in either slot: for counters that start over."""
        return self._highest

    @property
    def is_repeating(self) -> bool:
        """Whether the source still brings what the log has."""
        return bool(self._repeated)

    def positions(self) -> dict[str, StreamPosition]:
        """Of the source streams written last, for a beat."""
        return dict(self._recent)

    def take(self, found: Iterable[Found | Downstream], read_us: int) -> list[Outgoing]:
        """What to write, in order."""
        written: list[Outgoing] = []
        touched: dict[str, int] = {}
        for one in found:
            if isinstance(one, SourceMessage):
                self._message(one, read_us, written, touched)
            elif isinstance(one, Malformed):
                self._counts.malformed += 1
                if one.stream is not None and one.number is not None:
                    self._passed(one.stream, one.number, one.number, read_us, written)
            elif isinstance(one, Heartbeat | EndOfSession):
                self._passed(one.stream, one.next_number - 1, 0, read_us, written)
        for stream, sequence in touched.items():
            self._recent.pop(stream, None)
            self._recent[stream] = StreamPosition(sequence, read_us)
        while len(self._recent) > STREAMS_IN_BEAT:
            del self._recent[next(iter(self._recent))]
        return written

    def administrative(self, announcements: Iterable[Announcement], read_us: int) -> list[Outgoing]:
        """Administrative messages to be written now."""
        return [self._stamped(one.stream, one.after, one.part, read_us, one.payload) for one in announcements]

    def _message(self, message: SourceMessage, read_us: int, written: list[Outgoing], touched: dict[str, int]) -> None:
        stream, number = message.stream, message.number
        if self._repeated is not None:
            if self._repeated.leaves_out(stream, number):
                return
            self._repeated = self._repeated or None
        known = self._highest.get(stream)
        if known is None and len(self._highest) >= self._streams_max:
            self._counts.refused += 1
            return
        if number is None:
            number = 1 if known is None else known + 1
        if number > NUMBER_MAX:
            self._counts.refused += 1
            return
        if known is None or number > known:
            self._highest[stream] = number
        last = self.last.get(stream, -1)
        if number <= last:
            self._counts.backwards += 1
            written.append(self._stamped(stream, number, 0, read_us, message.payload))
            return
        self.last[stream] = touched[stream] = number
        due = self._administration.advance(stream, number)
        if due is None:
            written.append(self._stamped(stream, number, 0, read_us, message.payload))
            return
        written += self.administrative(due.before, read_us)
        written.append(self._stamped(stream, number, 0, read_us, message.payload))
        written += self.administrative(due.after, read_us)

    def _stamped(self, stream: str, number: int, part: int, read_us: int, payload: bytes) -> FeedMessage:
        self._written += 1
        self._counts.messages += 1
        return FeedMessage(stream, number, part, self._written, read_us, self._adapter, payload)

    def _passed(self, stream: str, number: int, least: int, read_us: int, written: list[Outgoing]) -> None:
        """The numbers up to `number` bring nothing more. `least`: the first of them that is known to be so."""
        last = self.last.get(stream)
        if last is None or number <= last or (least and number != last + 1):
            return
        self.last[stream] = number
        self._highest[stream] = max(number, self._highest.get(stream, -1))
        due = self._administration.advance(stream, number)
        record = PassedRecord(stream, number, self._written, read_us, self._adapter)
        written += self.administrative(due.before if due else (), read_us)
        written.append(record)
        written += self.administrative(due.after if due else (), read_us)
