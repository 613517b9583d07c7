"""Any interleaving of any two lossy copies, and any inputs at all (S3, S6)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from feeds.held import MESSAGE_BYTES
from feeds.merge_events import Delivered, Event, Late, Recover, Refused
from feeds.merge_inputs import Alive, Begin, Copy, Dead, Forget, GiveUp, Input, Passed, Reason, Searched, Suspect
from feeds.merge_settings import MergeSettings
from feeds.merge_state import MergerState
from feeds.message import FEEDS, Feed, stream_id
from tests import draw
from tests.unit.feeds.merged import STREAM, A, MergeRun, check, message, restored

COUNT = 25
NEVER_MS = 1e9
feeds = st.sampled_from(FEEDS)
streams = st.sampled_from([STREAM, stream_id("radar", 1), stream_id("ships", 0)])
numbers = st.integers(0, 14)


class Logs:
    """What two adapters have written, of which the subscriber has read a part."""

    def __init__(self, run: MergeRun, written: dict[Feed, list[int]]) -> None:
        self._run, self._written = run, written
        self._read = dict.fromkeys(written, 0)
        self._asked: list[Recover] = []

    def read_one(self, feed: Feed) -> None:
        if self._read[feed] < len(self._written[feed]):
            self._note(self._run.copy(feed, self._written[feed][self._read[feed]]))
            self._read[feed] += 1

    def read_all(self) -> None:
        for feed in self._written:
            while self._read[feed] < len(self._written[feed]):
                self.read_one(feed)

    def wait(self, ms: float) -> None:
        """And reads the ranges that are asked for."""
        self._note(self._run.wait(ms))
        while self._asked:
            one = self._asked.pop()
            for number in self._written[one.feed]:
                if one.first <= number <= one.last:
                    self._note(self._run.found(one.feed, number))
            self._note(self._run.apply(Searched(one.feed, one.stream, one.first, one.last)))

    def _note(self, events: list[Event]) -> None:
        self._asked += [event for event in events if isinstance(event, Recover)]


@settings(max_examples=draw.examples(150), deadline=None)
@given(st.data())
def test_what_either_feed_has_is_seen_once_in_order_and_the_rest_is_reported_lost_once(data: st.DataObject) -> None:
    """S3, S6: whoever is ahead, falls behind or falls silent; a feed's copies may be out of order."""
    has = {feed: data.draw(st.lists(st.booleans(), min_size=COUNT, max_size=COUNT)) for feed in FEEDS}
    shuffled = data.draw(st.booleans())
    written = {feed: [number for number in range(COUNT) if has[feed][number]] for feed in FEEDS}
    if shuffled:
        written = {feed: data.draw(st.permutations(found)) for feed, found in written.items()}
    run = MergeRun(MergeSettings(deadline_ms=NEVER_MS, recovers=data.draw(st.booleans()) and not shuffled))
    run.apply(Begin(STREAM, 0))
    logs = Logs(run, written)
    for feed, passed_ms in data.draw(st.lists(st.tuples(feeds, st.sampled_from([0, 1, 30])), max_size=60)):
        logs.read_one(feed)
        if not shuffled:  # else a feed passes numbers that it still brings
            logs.wait(passed_ms)
    logs.read_all()
    for feed in FEEDS:
        run.apply(Passed(feed, STREAM, COUNT - 1))
    logs.wait(25)
    logs.wait(25)
    either = [number for number in range(COUNT) if has[Feed.ACTIVE][number] or has[Feed.BACKUP][number]]
    assert run.seen() == either
    assert run.lost() == [number for number in range(COUNT) if number not in either]
    assert run.merger.due_ms() is None
    check(run)


inputs = st.one_of(
    *[st.builds(Copy, feeds, st.builds(message, numbers, streams), st.booleans())] * 5,
    st.builds(Copy, feeds, st.builds(message, numbers, streams, st.integers(1, 2), st.sampled_from([b"x", b"y"]))),
    st.builds(Begin, streams, numbers),
    st.builds(Passed, feeds, streams, numbers),
    st.tuples(feeds, streams, numbers, st.integers(0, 5)).map(lambda of: Searched(of[0], of[1], of[2], of[2] + of[3])),
    st.builds(Suspect, streams, numbers),
    st.builds(GiveUp, streams, numbers, st.sampled_from([Reason.DEADLINE, Reason.PASSED])),
    st.builds(Dead, feeds),
    st.builds(Alive, feeds),
    st.builds(Forget, streams),
)
limits = st.builds(
    MergeSettings,
    delivers_late=st.booleans(),
    recovers=st.booleans(),
    streams=st.integers(1, 4),
    held_messages=st.integers(1, 5),
    held_bytes=st.integers(1, 8).map(lambda count: count * (MESSAGE_BYTES + 1)),
    gaps=st.integers(1, 3),
    lost_ranges=st.integers(1, 3),
    compared=st.integers(1, 4),
    administrative=st.integers(1, 3),
)


def sizes_are_bounded(state: MergerState, limits: MergeSettings) -> bool:
    held_bytes = sum(len(held.payload) + MESSAGE_BYTES for one in state.streams for _, held in one.held)
    is_bounded = held_bytes <= limits.held_bytes and len(state.streams) + len(state.ended) <= limits.streams
    return is_bounded and all(
        len([1 for _, held in one.held if not held.part]) <= limits.held_messages
        and len(one.gaps) <= limits.gaps
        and len(one.lost) <= limits.lost_ranges
        and len(one.digests) <= limits.compared
        and len(one.parts) <= limits.administrative
        for one in state.streams
    )


@settings(max_examples=draw.examples(250), deadline=None)
@given(limits, st.lists(inputs, max_size=60), st.integers(0, 60))
def test_any_inputs_are_decided_alike_again_and_within_the_limits(
    limits: MergeSettings, given_inputs: list[Input], stop: int
) -> None:
    """S3: nothing twice, nothing dropped without a word, memory bounded; the same inputs at other times, and from a
    state that was stored at any point, give the same decisions."""
    run = MergeRun(limits)
    for one in given_inputs:
        run.now_ms += 7
        run.apply(one)
        assert sizes_are_bounded(run.merger.export(), limits)
    end = [GiveUp(name, 100, Reason.DEADLINE) for name in run.streams()]
    for one in end:
        run.apply(one)
    check(run)
    again = MergeRun(limits)
    for number, one in enumerate([*given_inputs, *end]):
        if number == stop:
            again.merger = restored(again.merger, limits, again.now_ms)
            again.merger = restored(again.merger, limits, again.now_ms)
        again.apply(one)
    assert again.events == run.events
    assert again.merger.export() == run.merger.export()


@settings(max_examples=draw.examples(100), deadline=None)
@given(st.lists(st.tuples(feeds, numbers, st.integers(0, 40)), min_size=1, max_size=40))
def test_the_written_inputs_with_the_timers_decisions_give_the_same_again(steps: list[tuple[Feed, int, int]]) -> None:
    """S3."""
    run = MergeRun(MergeSettings(deadline_ms=60))
    for feed, number, passed_ms in steps:
        run.copy(feed, number)
        run.wait(passed_ms)
    again = MergeRun(run.settings)
    for one in run.inputs:
        again.apply(one)
    assert again.events == run.events


def test_legitimate_repeats_of_content_are_kept() -> None:
    """S3: never by content."""
    run = MergeRun()
    for number in range(50):
        for feed in FEEDS:
            run.copy(feed, number, payload=b"the same")
    assert run.seen() == [*range(50)]


def test_memory_is_bounded_though_one_feed_is_gone_for_ever() -> None:
    limits = MergeSettings(held_messages=10, compared=16, lost_ranges=8)
    run = MergeRun(limits)
    for number in range(0, 3000, 2):
        events = run.merger.take(A, [message(number)], 0)
        assert not any(isinstance(event, Refused | Late) for event in events)
        assert len([event for event in events if isinstance(event, Delivered)]) <= 11
    assert sizes_are_bounded(run.merger.export(), limits)
