"""The merger: one stream of the two feeds of a source, nothing missing and nothing twice (S3, S6).

It is a fold over inputs in one order (:mod:`feeds.merge_inputs`): the same inputs give the same events, on any machine
and at any time. Times only decide what :meth:`Merger.proposals` proposes; a caller whose decisions must be repeatable
writes a proposal down, then applies it. Each source stream is merged by itself; there is no order between them.

What is guaranteed: of each source stream, each number that is delivered is delivered once; in order, but for messages
marked late; each number that is passed over is reported lost, once, before anything beyond it is delivered. Messages
are told apart by number only, never by content. This holds from stored state to stored state: what a subscriber
delivered after the state that it continues from, it sees again.

Apply what has come before asking for proposals: an input that waits unread looks like a gap.
"""

from collections.abc import Iterable

from feeds.held import HeldBytes
from feeds.merge_events import Event, Expired, Recover, Refused
from feeds.merge_inputs import (
    Alive,
    Begin,
    Copy,
    Dead,
    Decision,
    Forget,
    GiveUp,
    Input,
    Passed,
    Repositioned,
    Searched,
    Suspect,
)
from feeds.merge_settings import MergeSettings
from feeds.merge_state import MergerState, StreamState
from feeds.merged_stream import MergedStream
from feeds.message import FEEDS, Feed, FeedMessage, epoch_of, name_of


class Merger:
    """`state` is what :meth:`export` gave; all times are of one monotonic clock, in milliseconds. Raises FeedStateError
    for a state that is contradictory."""

    def __init__(
        self,
        settings: MergeSettings = MergeSettings(),  # noqa: B008 - immutable
        state: MergerState | None = None,
        now_ms: float = 0.0,
    ) -> None:
        self._settings = settings
        self._held_bytes = HeldBytes(settings.held_bytes)
        self._dead = [False for _ in FEEDS]
        self._streams: dict[str, MergedStream] = {}
        self._with_gaps: dict[str, MergedStream] = {}
        self._ended: dict[str, int] = {}
        if state is not None:
            self._restore(state, now_ms)

    def take(self, feed: Feed, messages: Iterable[FeedMessage], now_ms: float) -> list[Event]:
        """Copies of `feed`, in the order in which they came; the hot path of :class:`feeds.merge_inputs.Copy`."""
        events: list[Event] = []
        streams = self._streams
        for message in messages:
            stream = streams.get(message[0])
            if stream is None:
                stream = self._begin_with(feed, message, events)
                if stream is None:
                    continue
            if stream.take(feed, message, now_ms, events):
                self._note_gaps(message[0], stream)
        return events

    def apply(self, given: Input, now_ms: float) -> list[Event]:
        """Any input. What is said of a source stream that is not known has no effect."""
        events: list[Event] = []
        match given:
            case Copy(feed, message, False):
                return self.take(feed, (message,), now_ms)
            case Copy(feed, message):
                found = self._streams.get(message.stream) or self._begin_with(feed, message, events)
                if found is not None:
                    found.take_from_log(feed, message, now_ms, events)
                    self._note_gaps(message.stream, found)
            case Dead(feed) | Alive(feed):
                self._dead[feed] = isinstance(given, Dead)
                for stream in self._with_gaps.values():
                    stream.dead_changed(now_ms)
            case Begin(name, sequence):
                if name not in self._streams and not self._is_ended(name) and self._has_capacity():
                    self._add(name, sequence).begin(is_start=True)
            case _:
                found = self._streams.get(given.stream)
                if found is not None:
                    self._apply_to(found, given, now_ms, events)
        return events

    def proposals(self, now_ms: float) -> list[Decision]:
        """What the timer decides at `now_ms`. After these are applied there may be more: repeat until there is none."""
        return [one for stream in self._with_gaps.values() for one in stream.proposals(now_ms)]

    def decide(self, now_ms: float) -> list[Event]:
        """Applies all that the timer decides at `now_ms`; for callers who write no decisions down."""
        events: list[Event] = []
        while decisions := self.proposals(now_ms):
            for decision in decisions:
                events += self.apply(decision, now_ms)
        return events

    def due_ms(self) -> float | None:
        """When :meth:`proposals` has something; None as long as nothing is missing."""
        return min((due for one in self._with_gaps.values() if (due := one.due_ms()) is not None), default=None)

    def requests(self) -> list[Recover]:
        """What was asked of logs, and has not come: to be asked again after a restart."""
        return [one for stream in self._with_gaps.values() for one in stream.requests()]

    def is_missing(self, name: str, first: int, last: int) -> bool:
        """Whether any of these numbers of a source stream is in a gap."""
        stream = self._streams.get(name)
        return stream is not None and stream.is_missing(first, last)

    def export(self) -> MergerState:
        """The state, to be stored together with the position up to which inputs were applied."""
        streams = tuple(stream.export() for stream in self._streams.values())
        return MergerState(streams, tuple(self._dead), tuple(self._ended.items()))

    def export_stream(self, name: str) -> StreamState | None:
        """The state of one source stream; None if nothing is known of it."""
        stream = self._streams.get(name)
        return None if stream is None else stream.export()

    def ended_epoch(self, source: str) -> int | None:
        """The last epoch of a source (:func:`feeds.message.name_of`) that was forgotten; None if none was."""
        return self._ended.get(source)

    def is_behind(self, feed: Feed, message: FeedMessage) -> bool:
        """Whether `feed` is still to pass a message of a source stream that is known."""
        stream = self._streams.get(message.stream)
        return stream is not None and stream.highest(feed) < message.sequence

    @property
    def dead(self) -> tuple[bool, ...]:
        """Whether each feed is declared dead."""
        return tuple(self._dead)

    def _restore(self, state: MergerState, now_ms: float) -> None:
        self._dead[:] = state.dead
        self._ended = dict(state.ended)
        for one in state.streams:
            stream = self._add(one.stream, one.end)
            stream.restore(one, now_ms)
            self._note_gaps(one.stream, stream)

    def _apply_to(
        self,
        stream: MergedStream,
        given: Passed | Repositioned | Searched | Suspect | GiveUp | Forget,
        now_ms: float,
        events: list[Event],
    ) -> None:
        match given:
            case Passed(feed, _, through):
                stream.passed(feed, through, now_ms, events)
            case Repositioned(feed, _):
                stream.repositioned(feed, now_ms)
            case Searched():
                stream.searched(given, now_ms)
            case Suspect(_, through):
                stream.suspect(through, now_ms, events)
            case GiveUp(_, through, reason):
                stream.give_up(through, reason, events)
            case Forget(name):
                stream.end(events)
                del self._streams[name]
                self._ended[name_of(name)] = max(epoch_of(name), self._ended.get(name_of(name), 0))
        self._note_gaps(given.stream, stream)

    def _begin_with(self, feed: Feed, message: FeedMessage, events: list[Event]) -> MergedStream | None:
        """A source stream of which nothing is known begins with the first copy that comes."""
        if self._is_ended(message.stream):
            events.append(Expired(feed, message))
            return None
        if not self._has_capacity():
            events.append(Refused(feed, message, "streams"))
            return None
        first = message.sequence + 1 if message.part else message.sequence
        stream = self._add(message.stream, first)
        stream.begin(is_start=False)
        return stream

    def _add(self, name: str, sequence: int) -> MergedStream:
        stream = self._streams[name] = MergedStream(name, sequence, self._settings, self._held_bytes, self._dead)
        return stream

    def _has_capacity(self) -> bool:
        return len(self._streams) + len(self._ended) < self._settings.streams

    def _is_ended(self, name: str) -> bool:
        return epoch_of(name) <= self._ended.get(name_of(name), -1)

    def _note_gaps(self, name: str, stream: MergedStream) -> None:
        if stream.has_gaps:
            self._with_gaps[name] = stream
        else:
            self._with_gaps.pop(name, None)
