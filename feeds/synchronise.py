"""Administrative messages at the same point of both streams (S4); the state machines of both adapters, without I/O.

The active announces: after message N of this source stream, N = last + lead, I send A. A is numbered (N, k): it is the
k-th that follows N, and consumes no number, so the streams stay aligned whatever the backup does. The backup computes
d = N - last that it has processed:

| d                 | answer   | the backup                                                    |
|-------------------|----------|---------------------------------------------------------------|
| 0 < d ≤ threshold | accepted | will send A after N                                           |
| d ≤ 0             | passed   | has sent N before it knew of A, and never sends A             |
| d > threshold     | behind   | would let A wait too long, and never sends A                  |

It also refuses if too many wait (`full`), or if it knows another message as (N, k), of an active that was restarted
(`taken`). A refusal binds the backup. So upon a refusal the active is free: it sends A anyway, puts it off, or cancels
it, as configured. Without an answer it does not know whether the backup will send A. Then it sends A after N in any
case, as (N, k) is delivered once, whoever sends it; put off or cancelled, A might be delivered twice or against its
will.

The lead should be at least the number of messages that the backup may be behind, plus those of a round trip
(:func:`lead_of`). One object is for one source stream; the caller carries announcements and answers between adapters.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from feeds.errors import AnnouncementRefused

Place = tuple[int, int]
"""(N, k)."""


class Announcement(NamedTuple):
    """From the active to the backup. The record is a :class:`feeds.message.FeedMessage` with `sequence` = `after`."""

    stream: str
    after: int
    part: int
    payload: bytes


class Verdict(StrEnum):
    """What the backup does about an announcement."""

    ACCEPTED = "accepted"
    PASSED = "passed"
    BEHIND = "behind"
    FULL = "full"
    TAKEN = "taken"


class Answer(NamedTuple):
    """From the backup to the active; `last` is the highest number that the backup has processed."""

    stream: str
    after: int
    part: int
    verdict: Verdict
    last: int


class OnRefusal(StrEnum):
    """What the active does if the backup refuses."""

    SEND = "send"
    PUT_OFF = "put_off"
    CANCEL = "cancel"


class Cancelled(NamedTuple):
    """The message is not sent; the one who asked for it is to be told."""

    announcement: Announcement
    verdict: Verdict


class Due(NamedTuple):
    """What is to be sent right before and right after a message of the source, in order."""

    before: tuple[Announcement, ...]
    after: tuple[Announcement, ...]


_NOTHING_DUE = Due((), ())


@dataclass(frozen=True, slots=True)
class SynchroniseSettings:
    """Of either side; `threshold` is the backup's, the next two are the active's."""

    threshold: int = 10_000  # messages of the source that an accepted message may wait for
    on_refusal: OnRefusal = OnRefusal.SEND
    put_off: int = 3  # times that a message is put off; then it is sent anyway
    open_announcements: int = 1_000  # that wait for their turn
    answers: int = 10_000  # that the backup remembers; more than wait for their turn
    payload_bytes: int = 64 << 20  # of the messages that an adapter remembers

    def __post_init__(self) -> None:
        if not 0 < self.open_announcements < self.answers or self.threshold < 1 or self.put_off < 0:
            raise ValueError("limits must be positive, and more answers be remembered than announcements be open")


def lead_of(lag_s: float, round_trip_s: float, rate_per_s: float) -> int:
    """A lead for which the backup accepts: `lag_s` is the p99.9 of how far the active is ahead or behind, `rate_per_s`
    that of the source stream."""
    return max(1, ceil((abs(lag_s) + round_trip_s) * rate_per_s))


def verdict_on(after: int, last: int, waiting: int, settings: SynchroniseSettings) -> Verdict:
    """The backup's verdict on a message after number `after`, when `last` is the highest it has processed and `waiting`
    messages wait for their turn."""
    distance = after - last
    if distance <= 0:
        return Verdict.PASSED
    if distance > settings.threshold:
        return Verdict.BEHIND
    return Verdict.FULL if waiting >= settings.open_announcements else Verdict.ACCEPTED


class Schedule:
    """Announcements that wait for their turn; the caller processes the numbers of its source in the order it has."""

    def __init__(self, last: int) -> None:
        self.last = last
        self._waiting: dict[Place, Announcement] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, place: Place) -> bool:
        return place in self._waiting

    def add(self, announcement: Announcement) -> None:
        """It is sent after its number."""
        self._waiting[announcement.after, announcement.part] = announcement

    def remove(self, place: Place) -> Announcement:
        """It is not sent. Raises KeyError if it does not wait."""
        return self._waiting.pop(place)

    def advance(self, sequence: int) -> Due:
        """What is due now that `sequence` is sent. A number that the source has left out counts as passed; one that
        comes after a higher one has nothing due."""
        if sequence <= self.last:
            return _NOTHING_DUE
        self.last = sequence
        if not self._waiting:
            return _NOTHING_DUE
        places = sorted(place for place in self._waiting if place[0] <= sequence)
        before = self._take(place for place in places if place[0] < sequence)
        return Due(before, self._take(place for place in places if place[0] == sequence))

    def _take(self, places: Iterable[Place]) -> tuple[Announcement, ...]:
        return tuple(self._waiting.pop(place) for place in places)


class ActiveSynchroniser:
    """The active's side. `last` is the highest number that it has processed, -1 for none."""

    def __init__(self, stream: str, settings: SynchroniseSettings, last: int = -1) -> None:
        self._stream, self._settings = stream, settings
        self._schedule = Schedule(last)
        self._parts: dict[int, int] = {}  # by number that is to come: how many parts were given
        self._put_off: dict[Place, int] = {}  # how often each that waits was put off

    def announce(self, payload: bytes, lead: int) -> Announcement:
        """To be sent to the backup. Raises AnnouncementRefused if as many as allowed wait for their turn, and
        ValueError for a lead that is not positive."""
        if len(self._schedule) >= self._settings.open_announcements:
            raise AnnouncementRefused(f"{len(self._schedule)} administrative messages wait for their turn: try later")
        return self._place(payload, self._schedule.last, lead, 0)

    def answered(self, answer: Answer, lead: int) -> Announcement | Cancelled | None:
        """What follows from an answer: an announcement to be sent, as the message is put off; that it is cancelled; or
        nothing. An answer that comes after the message was sent, or a second one, changes nothing."""
        place = answer.after, answer.part
        if place not in self._schedule or answer.verdict is Verdict.ACCEPTED:
            return None
        count = self._put_off[place]
        is_last = count >= self._settings.put_off
        is_taken = answer.verdict is Verdict.TAKEN  # sent in this place it would be dropped as a duplicate
        if self._settings.on_refusal is OnRefusal.CANCEL or (is_taken and is_last):
            return Cancelled(self._remove(place), answer.verdict)
        if is_taken or (self._settings.on_refusal is OnRefusal.PUT_OFF and not is_last):
            payload = self._remove(place).payload
            return self._place(payload, max(self._schedule.last, answer.last), lead, count + 1)
        return None

    def advance(self, sequence: int) -> Due:
        """What is to be sent before and after message `sequence`. To be called for each message of the source."""
        due = self._schedule.advance(sequence)
        for one in (*due.before, *due.after):
            del self._put_off[one.after, one.part]
        if self._parts:
            self._parts = {number: parts for number, parts in self._parts.items() if number > sequence}
        return due

    def _place(self, payload: bytes, last: int, lead: int, put_off: int) -> Announcement:
        if lead < 1:
            raise ValueError(f"the lead must be at least 1, not {lead}")
        after = last + lead
        part = self._parts[after] = self._parts.get(after, 0) + 1
        announcement = Announcement(self._stream, after, part, payload)
        self._schedule.add(announcement)
        self._put_off[after, part] = put_off
        return announcement

    def _remove(self, place: Place) -> Announcement:
        del self._put_off[place]
        return self._schedule.remove(place)


class BackupSynchroniser:
    """The backup's side. `last` is the highest number that it has processed, -1 for none."""

    def __init__(self, stream: str, settings: SynchroniseSettings, last: int = -1) -> None:
        self._stream, self._settings = stream, settings
        self._schedule = Schedule(last)
        self._given: dict[Place, tuple[bytes, Verdict]] = {}

    def announced(self, announcement: Announcement) -> Answer:
        """To be sent to the active. The same announcement always has the same answer, as long as it is remembered."""
        place = announcement.after, announcement.part
        payload, verdict = self._given.get(place, (announcement.payload, None))
        if payload != announcement.payload:
            return self._answer(place, Verdict.TAKEN)
        if verdict is None:
            verdict = verdict_on(announcement.after, self._schedule.last, len(self._schedule), self._settings)
            if verdict is Verdict.ACCEPTED:
                self._schedule.add(announcement)
            self._remember(place, payload, verdict)
        return self._answer(place, verdict)

    def advance(self, sequence: int) -> Due:
        """What is to be sent before and after message `sequence`. To be called for each message of the source."""
        return self._schedule.advance(sequence)

    def _remember(self, place: Place, payload: bytes, verdict: Verdict) -> None:
        self._given[place] = payload, verdict
        if len(self._given) > self._settings.answers:
            del self._given[next(known for known in self._given if known not in self._schedule)]

    def _answer(self, place: Place, verdict: Verdict) -> Answer:
        return Answer(self._stream, *place, verdict, self._schedule.last)
