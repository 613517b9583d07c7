"""Merges the two feeds' copies of one source stream (S3, S6).

Theory of operation. `end` is one above the highest number that any feed has shown to exist. Below it each number is
missing (in a gap), held (behind a gap), lost, or delivered. So there is one question for a copy below `end`: is it in
a gap? If not, and not lost, it is a duplicate. A gap opens only when a copy, or a feed's word, goes beyond `end`; hence
a number is compared with the highest, never with the last. Without gaps nothing is held, and the next number is `end`.

No decision depends on a time. A time is noted with each gap, so that :meth:`proposals` can say what the timer wants:
a gap is suspected when the reorder time is over, and given up when both feeds are settled about it, and the reorder
time has passed since, or at the deadline. Each of these takes effect when the caller applies it.

A feed is settled about a gap if it has passed it, its log was searched, or it is dead. A feed that was joined only
after the gap has passed nothing: its log may have the numbers, so it is searched.
"""

from feeds.administrative_parts import AdministrativeParts
from feeds.digests import Digests
from feeds.errors import FeedStateError
from feeds.gaps import Gap, Gaps
from feeds.held import Held, HeldBytes
from feeds.lost_numbers import LostNumbers
from feeds.merge_events import (
    Delivered,
    Different,
    Duplicate,
    Event,
    Expired,
    Late,
    Lost,
    Recover,
    Recovered,
    Refused,
    Suspected,
)
from feeds.merge_inputs import Decision, GiveUp, Reason, Searched, Suspect
from feeds.merge_settings import MergeSettings
from feeds.merge_state import GapState, StreamState
from feeds.message import FEEDS, NUMBER_MAX, Feed, FeedMessage

_NONE_YET = -1


class MergedStream:
    """One source stream, which begins with `end`. All methods append what they decide to `events`; those that may open
    or close gaps say so. `dead` has whether each feed is dead, and is the merger's."""

    __slots__ = (
        "_dead",
        "_digests",
        "_end",
        "_first",
        "_gaps",
        "_held",
        "_held_bytes",
        "_highest",
        "_lost",
        "_next",
        "_parts",
        "_settings",
        "_settled_through",
        "_stream",
        "_suspected_through",
    )

    def __init__(self, stream: str, end: int, settings: MergeSettings, held_bytes: HeldBytes, dead: list[bool]) -> None:
        self._stream, self._settings, self._held_bytes, self._dead = stream, settings, held_bytes, dead
        self._end = end
        self._next = end  # the number that is to be delivered next; kept while there are gaps
        self._first = [_NONE_YET for _ in FEEDS]
        self._highest = [_NONE_YET for _ in FEEDS]
        self._gaps = Gaps()
        self._suspected_through = self._settled_through = _NONE_YET  # gaps up to these numbers are
        self._held = Held(held_bytes)
        self._lost = LostNumbers(settings.lost_ranges)
        self._digests = Digests(settings.compared)
        self._parts = AdministrativeParts(settings.administrative)

    def begin(self, is_start: bool) -> None:
        """Says, before anything is taken, what is before `end`: with `is_start` nothing that is expected of either
        feed; otherwise messages that were not delivered, so their copies are late."""
        if is_start:
            self._first = [self._end for _ in FEEDS]
            self._highest = [self._end - 1 for _ in FEEDS]
        elif self._end:
            self._lost.add(0, self._end - 1)

    @property
    def has_gaps(self) -> bool:
        return len(self._gaps) > 0

    def is_missing(self, first: int, last: int) -> bool:
        """Whether any of these numbers is in a gap."""
        gap = next(self._gaps.from_number(first), None)
        return gap is not None and gap.first <= last

    def highest(self, feed: Feed) -> int:
        """The highest number that a feed has passed; below 0 if there is none."""
        return self._highest[feed]

    def take(self, feed: Feed, message: FeedMessage, now_ms: float, events: list[Event]) -> bool:
        """A copy; whether gaps may have changed."""
        sequence = message[1]
        if message[2]:
            self._note_passed(feed, message.sequence)  # it follows that number
            return self.take_from_log(feed, message, now_ms, events)
        if sequence > self._highest[feed]:
            if self._first[feed] == _NONE_YET:
                self._first[feed] = sequence
            self._highest[feed] = sequence
        if self._gaps:
            self._take_with_gaps(feed, message, now_ms, events)
            return True
        if sequence == self._end:
            self._end = sequence + 1
            self._digests.add(feed, sequence, message[6])
            events.append(Delivered(feed, message))
            return False
        if sequence < self._end:
            self._drop_or_late(feed, message, events)
            return False
        self._take_with_gaps(feed, message, now_ms, events)
        return True

    def take_from_log(self, feed: Feed, message: FeedMessage, now_ms: float, events: list[Event]) -> bool:
        """A copy that was found in a feed's log; the feed has not passed what is before it. True: gaps may have
        changed."""
        if message.part:
            self._take_administrative(feed, message, now_ms, events)
        else:
            self._take_with_gaps(feed, message, now_ms, events)
        return True

    def passed(self, feed: Feed, through: int, now_ms: float, events: list[Event]) -> None:
        """The feed brings nothing more up to `through`. May open gaps."""
        self._note_passed(feed, through)
        self._open(through + 1, now_ms)
        self._settle(now_ms)
        self._shrink(events)

    def repositioned(self, feed: Feed, now_ms: float) -> None:
        """The feed is read on from another position. What it has passed before says nothing of the gaps there are."""
        self._first[feed] = self._highest[feed] = _NONE_YET
        self._unsettle(now_ms)

    def searched(self, what: Searched, now_ms: float) -> None:
        """The log of a feed was searched."""
        for gap in self._gaps.from_number(what.first):
            if gap.last > what.last:
                break
            if gap.first >= what.first:
                gap.searched |= 1 << what.feed
        self._settle(now_ms)

    def dead_changed(self, now_ms: float) -> None:
        """A feed was declared dead or alive."""
        self._unsettle(now_ms)

    def suspect(self, through: int, now_ms: float, events: list[Event]) -> None:
        """Declares what is missing up to `through` a gap, and asks for it."""
        for gap in self._gaps.from_number(self._suspected_through + 1):
            if gap.first > through:
                break
            self._suspected_through = gap.last
            if gap.suspected_ms is None:
                gap.suspected_ms = now_ms
                events.append(Suspected(self._stream, gap.first, gap.last))
                events.extend(self._requests(gap))

    def give_up(self, through: int, reason: Reason, events: list[Event]) -> None:
        """Reports what is missing up to `through` as lost, and delivers what waits behind it. May close gaps."""
        while gap := self._gaps.take_through(through):
            self._lost.add(gap.first, gap.last)
            events.append(Lost(self._stream, gap.first, gap.last, reason))
            self._next = gap.last + 1
            events.extend(Delivered(Feed(feed), message) for feed, message in self._held.pop_parts(gap.last))
            self._deliver_held(events)

    def end(self, events: list[Event]) -> None:
        """The source stream has ended: nothing more is waited for."""
        self.give_up(NUMBER_MAX, Reason.ENDED, events)

    def proposals(self, now_ms: float) -> list[Decision]:
        """What the timer decides at `now_ms`; nothing changes until it is applied."""
        found: list[Decision] = []
        for gap in self._gaps:
            reason = self._give_up_reason(gap, now_ms)
            if reason is None:
                break
            if found and isinstance(found[-1], GiveUp) and found[-1].reason is reason:
                found.pop()
            found.append(GiveUp(self._stream, gap.last, reason))
        suspected = _NONE_YET
        for gap in self._gaps.from_number(self._suspected_through + 1):
            if gap.since_ms + self._settings.reorder_ms > now_ms:
                break
            suspected = gap.last
        return found if suspected == _NONE_YET else [*found, Suspect(self._stream, suspected)]

    def due_ms(self) -> float | None:
        """When :meth:`proposals` has something; None if there are no gaps."""
        if not self._gaps:
            return None
        front, due = self._gaps.front, []
        if front.suspected_ms is not None:
            due.append(front.suspected_ms + self._settings.deadline_ms - self._settings.reorder_ms)
            if front.settled_ms is not None:
                due.append(front.settled_ms + self._settings.reorder_ms)
        for gap in self._gaps.from_number(self._suspected_through + 1):
            due.append(gap.since_ms + self._settings.reorder_ms)
            break
        return min(due)

    def requests(self) -> list[Recover]:
        """What was asked for and has not come: to ask again after a restart."""
        return [one for gap in self._gaps if gap.suspected_ms is not None for one in self._requests(gap)]

    def export(self) -> StreamState:
        """The state, without times."""
        return StreamState(
            self._stream,
            self._end,
            tuple(self._first),
            tuple(self._highest),
            tuple(GapState(one.first, one.last, one.suspected_ms is not None, one.searched) for one in self._gaps),
            self._lost.export(),
            self._lost.horizon,
            self._held.export(),
            self._digests.export(),
            self._parts.export(),
            self._parts.horizon,
        )

    def restore(self, state: StreamState, now_ms: float) -> None:
        """Continues from a state; waiting begins anew at `now_ms`. Raises FeedStateError if it is contradictory."""
        self._end, self._first, self._highest = state.end, list(state.first), list(state.highest)
        gaps = [
            Gap(one.first, one.last, now_ms, now_ms if one.suspected else None, None, one.searched)
            for one in state.gaps
        ]
        self._gaps = Gaps(gaps)
        self._next = gaps[0].first if gaps else state.end
        self._suspected_through = max((one.last for one in gaps if one.suspected_ms is not None), default=_NONE_YET)
        self._lost = LostNumbers(self._settings.lost_ranges, state.lost, state.horizon)
        self._held.restore(state.held)
        self._digests = Digests(self._settings.compared, state.digests)
        self._parts = AdministrativeParts(self._settings.administrative, state.parts, state.parts_horizon)
        missing = sum(gap.last - gap.first + 1 for gap in gaps)
        if len(self._held) + missing != state.end - self._next:
            raise FeedStateError(
                f"the state of {self._stream} is contradictory: held and missing numbers do not add up"
            )
        self._settle(now_ms)

    def _take_with_gaps(self, feed: Feed, message: FeedMessage, now_ms: float, events: list[Event]) -> None:
        sequence = message.sequence
        if sequence >= self._end:
            self._open(sequence, now_ms)
            self._next = self._next if self._gaps else sequence
            self._end = sequence + 1
        else:
            gap = self._gaps.take_out(sequence)
            if gap is None:
                self._drop_or_late(feed, message, events)
                self._settle(now_ms)
                return
            if gap.suspected_ms is not None:
                events.append(Recovered(feed, self._stream, sequence))
        self._digests.add(feed, sequence, message.payload)
        self._held.add(feed, message)
        self._deliver_held(events)
        self._settle(now_ms)
        self._shrink(events)

    def _drop_or_late(self, feed: Feed, message: FeedMessage, events: list[Event]) -> None:
        sequence = message[1]
        if sequence in self._lost:
            if self._settings.delivers_late:
                self._lost.remove(sequence)
                self._digests.add(feed, sequence, message.payload)
            events.append(Late(feed, message, self._settings.delivers_late))
        elif sequence < self._lost.horizon:
            events.append(Expired(feed, message))
        else:
            if self._digests.differs(feed, sequence, message[6]):
                events.append(Different(feed, message))
            events.append(Duplicate(feed, message))

    def _take_administrative(self, feed: Feed, message: FeedMessage, now_ms: float, events: list[Event]) -> None:
        """It follows message N, so there is such a message."""
        self._open(message.sequence + 1, now_ms)
        next_number = self._next if self._gaps else self._end
        if message in self._parts:
            if self._parts.differs(message):
                events.append(Different(feed, message))
            events.append(Duplicate(feed, message))
        elif message.sequence < self._parts.horizon:
            events.append(Expired(feed, message))
        elif not self._parts.add(message, next_number):
            events.append(Refused(feed, message, "administrative"))
        elif message.sequence >= next_number:
            self._held.add(feed, message)
        elif message.sequence == next_number - 1:
            events.append(Delivered(feed, message))
        else:  # nobody has reported it lost, so it is delivered in any case
            events.append(Late(feed, message, deliver=True))
        self._settle(now_ms)
        self._shrink(events)

    def _note_passed(self, feed: Feed, through: int) -> None:
        if through > self._highest[feed]:
            if self._first[feed] == _NONE_YET:
                self._first[feed] = through + 1
            self._highest[feed] = through

    def _open(self, end: int, now_ms: float) -> None:
        """The numbers below `end` exist; those that nobody has shown before are missing."""
        if end > self._end:
            if not self._gaps:
                self._next = self._end
            self._gaps.append(Gap(self._end, end - 1, now_ms))
            self._end = end

    def _deliver_held(self, events: list[Event]) -> None:
        end = self._gaps.front.first if self._gaps else self._end
        if end > self._next:
            events.extend(Delivered(Feed(feed), message) for feed, message in self._held.pop(self._next, end))
            self._next = end

    def _unsettle(self, now_ms: float) -> None:
        """Something that gaps were settled by may hold no longer."""
        for gap in self._gaps:
            if gap.settled_ms is not None and not self._is_settled(gap):
                gap.settled_ms = None
        self._settled_through = _NONE_YET
        self._settle(now_ms)

    def _settle(self, now_ms: float) -> None:
        for gap in self._gaps.from_number(self._settled_through + 1):
            if gap.settled_ms is None:
                if not self._is_settled(gap):
                    break
                gap.settled_ms = now_ms
            self._settled_through = gap.last

    def _is_settled(self, gap: Gap) -> bool:
        return all(self._dead[feed] or self._has_passed(feed, gap) for feed in FEEDS)

    def _has_passed(self, feed: Feed, gap: Gap) -> bool:
        joined_before = self._first[feed] <= gap.first or not self._settings.recovers
        return bool(gap.searched >> feed & 1) or (joined_before and self._highest[feed] >= gap.last)

    def _requests(self, gap: Gap) -> list[Recover]:
        if not self._settings.recovers:
            return []
        asked = [feed for feed in FEEDS if not self._dead[feed] and not self._has_passed(feed, gap)]
        return [Recover(feed, self._stream, gap.first, gap.last) for feed in asked]

    def _give_up_reason(self, gap: Gap, now_ms: float) -> Reason | None:
        if gap.suspected_ms is None:
            return None
        if gap.settled_ms is not None and gap.settled_ms + self._settings.reorder_ms <= now_ms:
            return Reason.PASSED
        if gap.suspected_ms + self._settings.deadline_ms - self._settings.reorder_ms <= now_ms:
            return Reason.DEADLINE
        return None

    def _shrink(self, events: list[Event]) -> None:
        """Ends gaps until what they hold back is within the limits."""
        while self._gaps and self._is_full():
            self.give_up(self._gaps.front.last, Reason.FULL, events)

    def _is_full(self) -> bool:
        limits = self._settings
        return len(self._held) > limits.held_messages or len(self._gaps) > limits.gaps or self._held_bytes.is_full
