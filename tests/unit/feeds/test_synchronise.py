"""Administrative messages at the same point of both streams, over all interleavings of a small model (S4)."""

from collections.abc import Iterator
from copy import deepcopy

import pytest

from feeds.errors import AnnouncementRefused
from feeds.merge import Merger
from feeds.merge_events import Delivered, Late
from feeds.merge_inputs import Begin
from feeds.message import FEEDS, Feed, FeedMessage
from feeds.synchronise import (
    ActiveSynchroniser,
    Announcement,
    Answer,
    BackupSynchroniser,
    Cancelled,
    Due,
    OnRefusal,
    SynchroniseSettings,
    Verdict,
    lead_of,
)
from tests.unit.feeds.merged import STREAM, A, B, message

COUNT = 5
"""Messages of the source, 0 … 4."""
ANNOUNCED_AT = 1
"""So many the active has sent when it announces."""
LEAD = 2
REFUSALS = {Verdict.PASSED, Verdict.BEHIND}


class Adapters:
    """An active and a backup, and what is on its way between them. Each choice is something that may happen next."""

    def __init__(self, settings: SynchroniseSettings, lead: int, left_out: int | None) -> None:
        self.lead, self.left_out = lead, left_out
        self.active, self.backup = ActiveSynchroniser(STREAM, settings), BackupSynchroniser(STREAM, settings)
        self.read: dict[Feed, int] = dict.fromkeys(FEEDS, 0)
        self.written: dict[Feed, list[FeedMessage]] = {feed: [] for feed in FEEDS}
        self.announcements: list[Announcement] = []
        self.answers: list[Answer] = []
        self.given: dict[tuple[int, int], Verdict] = {}
        self.announced: list[Announcement] = []
        self.cancelled: Cancelled | None = None

    def choices(self) -> list[str]:
        found = [f"read {feed.name}" for feed in FEEDS if self.read[feed] < COUNT]
        if self.announcements:
            found += ["bring announcement", "lose announcement"]
        return found + (["bring answer", "lose answer"] if self.answers else [])

    def do(self, choice: str) -> None:
        match choice:
            case "bring announcement":
                self._bring(self.announcements.pop(0))
            case "bring answer":
                self._note(self.active.answered(self.answers.pop(0), self.lead))
            case "lose announcement":
                self.announcements.pop(0)
            case "lose answer":
                self.answers.pop(0)
            case _:
                self._read(Feed[choice.removeprefix("read ")])

    def parts(self, feed: Feed) -> list[tuple[int, int]]:
        """The places where it has sent administrative messages."""
        return [(one.sequence, one.part) for one in self.written[feed] if one.part]

    def state(self) -> str:
        """All that decides what may happen from now on, and all that is checked in the end."""
        of = self.read, self.written, self.announcements, self.answers, self.given, self.announced, self.cancelled
        return repr(of)

    def _bring(self, announcement: Announcement) -> None:
        answer = self.backup.announced(announcement)
        assert self.backup.announced(announcement) == answer, "asked again it says the same"
        last = max((one.sequence for one in self.written[B]), default=-1)
        assert (answer.verdict is Verdict.PASSED) == (answer.after <= last)
        self.given[answer.after, answer.part] = answer.verdict
        self.answers.append(answer)

    def _read(self, feed: Feed) -> None:
        """The next message of the source, unless the backup's source has left it out."""
        number = self.read[feed]
        self.read[feed] += 1
        if not (feed is B and number == self.left_out):
            due = self.active.advance(number) if feed is A else self.backup.advance(number)
            self.written[feed] += [*map(of, due.before), message(number), *map(of, due.after)]
        if feed is A and self.read[A] == ANNOUNCED_AT:
            self._note(self.active.announce(b"A", self.lead))

    def _note(self, what: Announcement | Cancelled | None) -> None:
        if isinstance(what, Announcement):
            self.announced.append(what)
            self.announcements.append(what)
        elif what is not None:
            self.cancelled = what


def of(announcement: Announcement) -> FeedMessage:
    return message(announcement.after, part=announcement.part, payload=announcement.payload)


def all_ends(beginning: Adapters) -> Iterator[Adapters]:
    """How it may end: each order in which things can happen is followed, from each state once."""
    known, open_ends = {beginning.state()}, [beginning]
    while open_ends:
        here = open_ends.pop()
        choices = here.choices()
        if not choices:
            yield here
        for choice in choices:
            then = deepcopy(here)
            then.do(choice)
            if (state := then.state()) not in known:
                known.add(state)
                open_ends.append(then)


@pytest.mark.parametrize("left_out", [None, 2])
@pytest.mark.parametrize("threshold", [1, 9])
@pytest.mark.parametrize("on_refusal", OnRefusal)
def test_over_all_interleavings(on_refusal: OnRefusal, threshold: int, left_out: int | None) -> None:
    """S4: the message is in the merged stream once, or cancelled and not at all. Where both adapters send it, they do
    so at the same point. A backup that has accepted sends it there, and one that has refused never does."""
    settings, verdicts = SynchroniseSettings(threshold, on_refusal, put_off=1), set[Verdict]()
    for end in all_ends(Adapters(settings, LEAD, left_out)):
        verdicts |= {*end.given.values()}
        places = {*end.parts(A), *end.parts(B)}
        is_ahead = end.announced[-1].after >= COUNT
        assert len(places) == (0 if end.cancelled or is_ahead else 1)
        assert len(end.parts(A)) == len(places), "without a refusal the active sends it in any case"
        for place, verdict in end.given.items():
            assert end.parts(B).count(place) == (verdict is Verdict.ACCEPTED and place[0] < COUNT)
        if end.cancelled:
            assert on_refusal is OnRefusal.CANCEL
            assert end.cancelled.verdict in REFUSALS
        for first, second in ((A, B), (B, A)):
            assert merged(end, first, second) == len(places)
    assert verdicts == {Verdict.ACCEPTED, Verdict.PASSED} | ({Verdict.BEHIND} if threshold == 1 else set())


def merged(end: Adapters, first: Feed, second: Feed) -> int:
    """How many administrative messages a subscriber gets that reads all of one feed first."""
    merger, got = Merger(), list[FeedMessage]()
    merger.apply(Begin(STREAM, 0), 0)
    for feed in (first, second):
        events = merger.take(feed, end.written[feed], 0)
        got += [event.message for event in events if isinstance(event, Delivered | Late)]
    assert [one.sequence for one in got if not one.part] == [*range(COUNT)], "numbers stay aligned"
    return len([one for one in got if one.part])


def test_several_at_one_point_have_parts_in_order() -> None:
    active = ActiveSynchroniser(STREAM, SynchroniseSettings())
    made = [active.announce(payload, 3) for payload in (b"a", b"b")]
    assert [(one.after, one.part) for one in made] == [(2, 1), (2, 2)]
    assert active.advance(0) == Due((), ())
    assert active.advance(2) == Due((), tuple(made))
    assert active.announce(b"c", 1)[1:3] == (3, 1)
    assert active.advance(9) == Due((Announcement(STREAM, 3, 1, b"c"),), ())
    assert active.advance(5) == Due((), ()), "a number out of order"


def test_a_message_is_put_off_beyond_what_the_backup_has_passed_and_not_for_ever() -> None:
    """S4."""
    active = ActiveSynchroniser(STREAM, SynchroniseSettings(on_refusal=OnRefusal.PUT_OFF, put_off=1), last=10)
    first = active.announce(b"a", 5)
    second = active.answered(Answer(STREAM, first.after, first.part, Verdict.PASSED, last=40), 5)
    assert second == Announcement(STREAM, 45, 1, b"a")
    assert active.answered(Answer(STREAM, 45, 1, Verdict.PASSED, last=80), 5) is None
    assert active.advance(45) == Due((), (second,))


def test_the_place_of_another_message_is_not_used() -> None:
    """An active that was restarted, and announces at the same place: its message would be dropped as a duplicate."""
    settings = SynchroniseSettings(put_off=1)
    backup, restarted = BackupSynchroniser(STREAM, settings), ActiveSynchroniser(STREAM, settings)
    assert backup.announced(Announcement(STREAM, 1, 1, b"before")).verdict is Verdict.ACCEPTED
    answer = backup.announced(restarted.announce(b"after", 2))
    assert answer.verdict is Verdict.TAKEN
    again = restarted.answered(answer, 2)
    assert again == Announcement(STREAM, 1, 2, b"after")
    assert restarted.answered(answer._replace(part=2), 2) == Cancelled(again, Verdict.TAKEN)


def test_limits_are_kept() -> None:
    settings = SynchroniseSettings(open_announcements=1, answers=2)
    active, backup = ActiveSynchroniser(STREAM, settings), BackupSynchroniser(STREAM, settings)
    assert backup.announced(active.announce(b"a", 9)).verdict is Verdict.ACCEPTED
    with pytest.raises(AnnouncementRefused, match="1 administrative"):
        active.announce(b"b", 9)
    for number in range(10, 20):
        assert backup.announced(Announcement(STREAM, number, 1, b"")).verdict is Verdict.FULL
    assert backup.announced(Announcement(STREAM, 8, 1, b"a")).verdict is Verdict.ACCEPTED, "what waits is remembered"
    with pytest.raises(ValueError, match="lead"):
        ActiveSynchroniser(STREAM, settings).announce(b"a", 0)
    with pytest.raises(ValueError, match="more answers"):
        SynchroniseSettings(open_announcements=5, answers=5)


def test_a_lead_covers_the_lag_and_a_round_trip() -> None:
    assert lead_of(0.2, 0.05, 1000) == 250
    assert lead_of(-0.2, 0.05, 1000) == 250
    assert lead_of(0, 0, 10) == 1
