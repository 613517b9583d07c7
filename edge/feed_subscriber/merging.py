"""The two copies become items, and committed items become what is stored of source streams (S3). Without I/O.

The merger decides; this is what is around it: new source streams wait a moment (:mod:`.beginnings`), epochs end
(:mod:`.epochs`), events become items with ordinals (:mod:`.outputs`), and committed items are applied to the views of
their source streams (:mod:`.stream_view`). Times are seconds of :mod:`.reading_clock`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from edge.feed_subscriber.batch import Part
from edge.feed_subscriber.beginnings import Beginnings, WaitingCopy
from edge.feed_subscriber.epochs import Epochs
from edge.feed_subscriber.items import Different, Ended, FeedDelivery, FeedItem, Gap, Lost, Recovered
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.outputs import Outputs
from edge.feed_subscriber.state import StoredState
from edge.feed_subscriber.stream_view import NOT_JOINED, Place, StreamView
from feeds import merge_events as events
from feeds.merge import Merger
from feeds.merge_inputs import Begin, Copy, Forget, GiveUp, Input, Passed, Reason, Repositioned
from feeds.merge_state import MergerState, StreamState
from feeds.message import FEEDS, Feed, FeedMessage, epoch_of, name_of
from feeds.passed import PassedRecord

_LOWEST: Final[Place] = (-1, 0)
_SNAPSHOT_CHECK_S: Final = 0.025
SNAPSHOT: Final = "snapshot"
"""The adapter of messages that a snapshot has brought."""


class Merging:
    """`begins`: numbers with which source streams begin, unless they are stored. Raises FeedStateError for a state that
    is contradictory."""

    def __init__(
        self, limits: FeedLimits, stored: StoredState, begins: Mapping[str, int], *, has_snapshots: bool = False
    ) -> None:
        self._limits = limits
        self.outputs = Outputs()
        self.counts: Counter[str] = Counter()
        """What was not given, by reason: duplicate, expired, late, refused, malformed."""
        self.has_requests = False
        """Whether the merger has asked for something since the caller has looked."""
        self._gaps: list[Gap] | None = [] if has_snapshots else None  # found since the caller has looked
        self._beginnings = Beginnings(limits.begin_ms / 1000, limits.merge.held_bytes)
        self._epochs = Epochs(limits.epoch_s)
        self._snapshots: Counter[str] = Counter()  # that are asked for, by stream
        self._ended = dict(stored.ended)
        self._forgotten: set[str] = set()  # have ended, and the application has not committed that yet
        self._changed: dict[str, StreamView | None] = {}
        self._changed_ended: dict[str, int] = {}
        self._views: dict[str, StreamView] = {}
        state = MergerState(stored.streams, tuple(False for _ in FEEDS), tuple(stored.ended.items()))
        self._merger = Merger(limits.merge, state, 0.0)
        for one in stored.streams:
            self._add_view(StreamView.restored(one, limits.merge))
        for stream, number in begins.items():
            if stream not in self._views and not self._has_ended(stream):
                self._merger.apply(Begin(stream, number), 0.0)
                self._add_view(StreamView(stream, number, limits.merge, is_start=True))
                self._changed[stream] = self._views[stream]

    # -- inputs --------------------------------------------------------------------------------------------------------

    def take_part(self, feed: Feed, part: Part, now_s: float, places: dict[str, Place]) -> None:
        """Records in order; notes in `places` how far they reach in each source stream."""
        if isinstance(part, PassedRecord):
            self._take_passed(feed, part, now_s, places)
            return
        views, has_unknown = self._views, len(self._beginnings) > 0
        for message in part:
            stream, sequence, number = message[0], message[1], message[2]
            found = places.get(stream)
            if found is None:
                view = views.get(stream)
                if view is None:
                    has_unknown = True
                elif view.first[feed] == NOT_JOINED:
                    view.join(feed, sequence + 1 if number else sequence)
                places[stream] = sequence, number
            elif (sequence, number) > found:
                places[stream] = sequence, number
        known = [one for one in part if self._has_begun(feed, one, now_s)] if has_unknown else part
        self._emit(self._merger.take(feed, known, now_s * 1000))

    def apply(self, given: Input, now_s: float) -> None:
        """Any other input of the merger."""
        self._emit(self._merger.apply(given, now_s * 1000))

    def begin_streams(self, now_s: float, expected: frozenset[Feed]) -> None:
        """Begins source streams that have waited long enough, or that all `expected` feeds have brought."""
        if len(self._beginnings):
            for stream, copies in self._beginnings.pop_ready(now_s, expected):
                self._begin(stream, copies, now_s)

    def reposition(self, feed: Feed, now_s: float) -> None:
        """The feed is read no longer, or from another position."""
        for stream, view in self._views.items():
            if stream not in self._forgotten and view.first[feed] != NOT_JOINED:
                view.leave(feed)
                self._changed[stream] = view
                self.apply(Repositioned(feed, stream), now_s)

    def take_gaps(self) -> list[Gap]:
        """The gaps that were found since the last time. For each of them a snapshot is asked for. Until it has come, or
        the caller says that there is none, the gap is not given up because both feeds have passed it."""
        found, self._gaps = self._gaps or [], None if self._gaps is None else []
        return found

    def take_snapshot(self, feed: Feed, gap: Gap, found: Mapping[int, bytes], now_s: float) -> None:
        """What a snapshot has of a gap; empty if nothing."""
        self._snapshots[gap.stream] -= 1
        for number in sorted(found):
            if gap.first <= number <= gap.last:
                message = FeedMessage(gap.stream, number, 0, 0, 0, SNAPSHOT, found[number])
                self.apply(Copy(feed, message, from_log=True), now_s)

    def tick(self, now_s: float, is_gone: Callable[[Feed], bool]) -> None:
        """What time does; `is_gone`: nothing comes from this feed."""
        while proposals := [one for one in self._merger.proposals(now_s * 1000) if not self._is_awaited(one)]:
            for one in proposals:
                self.apply(one, now_s)
        for stream in self._epochs.ended(now_s, is_gone):
            self._forget(stream, now_s)

    # -- answers -------------------------------------------------------------------------------------------------------

    def due(self, now_s: float) -> float | None:
        """When :meth:`tick` or :meth:`begin_streams` has something to do."""
        gap_ms = self._merger.due_ms()
        due = [self._beginnings.due(), self._epochs.due(), None if gap_ms is None else gap_ms / 1000]
        found = min((one for one in due if one is not None), default=None)
        if found is not None and self._snapshots.total():
            return max(found, now_s + _SNAPSHOT_CHECK_S)
        return found

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is missing, and no source stream waits to begin."""
        return self._merger.due_ms() is None and not len(self._beginnings)

    def unread(self, followed: frozenset[Feed]) -> list[events.Recover]:
        """What is missing and will not come by reading on, so a log is to be searched for it. What a followed feed was
        joined before comes by itself, if its log has it."""
        self.has_requests = False
        return [
            one
            for one in self._merger.requests()
            if one.feed not in followed or not NOT_JOINED < self._views[one.stream].first[one.feed] <= one.first
        ]

    def without_ended(self, places: dict[str, Place]) -> dict[str, Place]:
        """Without source streams that have ended, of which nothing more is committed."""
        return {one: places[one] for one in places if one not in self._forgotten} if self._forgotten else places

    # -- the application -----------------------------------------------------------------------------------------------

    def commit(self, ordinal: int) -> None:
        """The application is done with all items up to this one."""
        for item in self.outputs.commit(ordinal):
            self._commit_item(item)

    def is_committed(self, stream: str, place: Place) -> bool:
        """Whether nothing of a source stream up to this place has to be read again."""
        view = self._views.get(stream)
        return stream not in self._beginnings if view is None else view.place >= place

    def changes(self) -> tuple[dict[str, StreamState | None], dict[str, int]]:
        """What is to be stored since the last time: source streams, None for those that have ended; and the newest
        epochs of sources that have ended."""
        streams = {name: None if view is None else view.state() for name, view in self._changed.items()}
        ended = self._changed_ended
        self._changed, self._changed_ended = {}, {}
        return streams, ended

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take_passed(self, feed: Feed, record: PassedRecord, now_s: float, places: dict[str, Place]) -> None:
        view = self._views.get(record.stream)
        if view is not None:
            view.join(feed, record.sequence + 1)
            self.apply(Passed(feed, record.stream, record.sequence), now_s)
        elif not self._beginnings.add_passed(feed, record):
            return
        places[record.stream] = max(places.get(record.stream, _LOWEST), (record.sequence, 0))

    def _has_begun(self, feed: Feed, message: FeedMessage, now_s: float) -> bool:
        """Whether the merger may have it; otherwise it waits for its source stream to begin."""
        if message.stream in self._views or self._has_ended(message.stream):
            return True
        self._beginnings.add(feed, message, now_s)
        return False

    def _has_ended(self, stream: str) -> bool:
        return epoch_of(stream) <= self._ended.get(name_of(stream), -1)

    def _begin(self, stream: str, copies: list[WaitingCopy], now_s: float) -> None:
        if len(self._views) + len(self._ended) >= self._limits.merge.streams:
            self.counts["refused"] += len(copies)
            return
        view = StreamView(stream, _first_of(copies[0].message), self._limits.merge, is_start=False)
        self._add_view(view)
        for feed, message in copies:
            view.join(feed, _first_of(message))
            if isinstance(message, FeedMessage):
                self._emit(self._merger.take(feed, (message,), now_s * 1000))
            else:
                self.apply(Passed(feed, stream, message.sequence), now_s)

    def _add_view(self, view: StreamView) -> None:
        self._views[view.stream] = view
        self._epochs.add(view)

    def _emit(self, found: Iterable[events.Event]) -> None:
        outputs = self.outputs
        for event in found:
            match event:
                case events.Delivered(_, message):
                    outputs.append(_delivery(outputs.produced + 1, message, late=False))
                case events.Duplicate():
                    self.counts["duplicate"] += 1
                case events.Late(_, message, True):
                    outputs.append(_delivery(outputs.produced + 1, message, late=True))
                case events.Late():
                    self.counts["late"] += 1
                case events.Expired():
                    self.counts["expired"] += 1
                case events.Refused():
                    self.counts["refused"] += 1
                case events.Recover():
                    self.has_requests = True
                case events.Recovered(_, stream, sequence):
                    outputs.add(Recovered, stream=stream, sequence=sequence)
                case events.Lost(stream, first, last, reason):
                    outputs.add(Lost, stream=stream, first=first, last=last, reason=reason.value)
                case events.Suspected(stream, first, last):
                    gap = Gap(ordinal=outputs.produced + 1, stream=stream, first=first, last=last)
                    outputs.append(gap)
                    if self._gaps is not None:
                        self._gaps.append(gap)
                        self._snapshots[stream] += 1
                case events.Different(_, message):
                    outputs.add(
                        Different,
                        stream=message.stream,
                        sequence=message.sequence,
                        part=message.part,
                        adapter=message.adapter,
                    )

    def _is_awaited(self, one: object) -> bool:
        return isinstance(one, GiveUp) and one.reason is Reason.PASSED and self._snapshots[one.stream] > 0

    def _forget(self, stream: str, now_s: float) -> None:
        self.apply(Forget(stream), now_s)
        self._epochs.remove(stream)
        self._forgotten.add(stream)
        name = name_of(stream)
        self._ended[name] = max(epoch_of(stream), self._ended.get(name, -1))
        self.outputs.add(Ended, stream=stream)

    def _commit_item(self, item: FeedItem) -> None:
        match item:
            case FeedDelivery() | Lost():
                view = self._views[item.stream]
                view.commit(item)
                self._changed[item.stream] = view
            case Ended(stream=stream):
                del self._views[stream]
                self._forgotten.discard(stream)
                self._changed[stream] = None
                name = name_of(stream)
                self._changed_ended[name] = max(epoch_of(stream), self._changed_ended.get(name, -1))


def _first_of(message: FeedMessage | PassedRecord) -> int:
    """The number at which a feed is joined that brings this first."""
    is_message = isinstance(message, FeedMessage) and not message.part
    return message.sequence if is_message else message.sequence + 1


def _delivery(ordinal: int, message: FeedMessage, *, late: bool) -> FeedDelivery:
    stream, sequence, part, _, read_us, adapter, payload = message
    return FeedDelivery(
        ordinal=ordinal,
        stream=stream,
        sequence=sequence,
        part=part,
        payload=payload,
        read_us=read_us,
        adapter=adapter,
        late=late,
    )
