"""The two receivers: what is said to be injected is what their copies show (S5)."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from feeds.message import Feed, stream_id
from harness.feed_receivers import BURSTS, Loss, Receiver, in_order, numbered, ranges, receive, truth_of

STREAMS = stream_id("a", 0), stream_id("b", 3)
HARSH = Receiver(Loss(0.1, 0.5), 7_000, 900, 0.1, 3_500, 0.1, 5_000, 0.1, 12_345)


@given(seed=st.integers(0, 2**32), count=st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_the_truth_is_what_the_copies_show(seed: int, count: int) -> None:
    source = [one for stream in STREAMS for one in numbered((b"%d" % (n % 3) for n in range(count)), stream)]
    sides = [receive(source, HARSH, feed, seed) for feed in Feed]
    truth = truth_of(source, *sides)
    everything, first, payloads = {one[:2] for one in source}, [], []
    for side in sides:
        counted = Counter(copy.message[:2] for copy in side.copies)
        assert everything - counted.keys() == truth.missing[side.feed]
        assert {key for key, times in counted.items() if times > 1} == truth.repeated[side.feed]
        assert [copy.at_us for copy in side.copies] == sorted(copy.at_us for copy in side.copies)
        assert [copy.message.message_sequence for copy in side.copies] == list(range(len(side.copies)))
        assert all(copy.message.read_us - copy.at_us == HARSH.clock_us for copy in side.copies)
        first.append({copy.message[:2]: copy.at_us for copy in reversed(side.copies)})
        payloads.append({copy.message[:2]: copy.message.payload for copy in side.copies})
    both = first[0].keys() & first[1].keys()
    assert truth.lost == everything - first[0].keys() - first[1].keys()
    assert truth.lag_us == {key: first[1][key] - first[0][key] for key in both}
    assert truth.different == {key for key in both if payloads[0][key] != payloads[1][key]}
    assert Counter(in_order(*sides)) == Counter(sides[0].copies + sides[1].copies)


def test_losses_are_as_asked_for_independent_and_from_the_seed() -> None:
    """1 % each, in bursts of four; both together a hundredth of that."""
    source = numbered([b""] * 100_000, STREAMS[0])
    active, backup = (receive(source, Receiver(BURSTS), feed, 1) for feed in Feed)
    assert 750 < len(active.lost) < 1_250
    assert 3 < len(active.lost) / len(ranges(number for _, number in active.lost)) < 5
    assert len(active.lost & backup.lost) < 100
    assert receive(source, Receiver(BURSTS), Feed.ACTIVE, 1).lost == active.lost
    assert receive(source, Receiver(BURSTS), Feed.ACTIVE, 2).lost != active.lost


def test_a_receiver_without_faults_passes_everything_on() -> None:
    source = numbered([b"x", b"", b"y"], STREAMS[0], first=5)
    copies = receive(source, Receiver(), Feed.BACKUP, 0, "north").copies
    assert [(copy.at_us, *copy.message[:2], copy.message.payload) for copy in copies] == [
        (one.at_us, one.stream, one.sequence, one.payload) for one in source
    ]
    assert {copy.message.adapter for copy in copies} == {"north"}
