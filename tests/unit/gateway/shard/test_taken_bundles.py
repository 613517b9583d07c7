"""What a shard remembers of bundles, against what the log alone says; over crashes between any two writes (M14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.messages import Message
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker, batch_of, records_of
from gateway.shard.taken_bundles import BundleLimits, TakenBundles
from mqtt.properties import NO_PROPERTIES
from schemas.envelope import BundleMark
from schemas.errors import RecordError

TOPICS = ("a", "b")
HIGHEST = 2**64 - 1


def message(offset: int, sequence: int, low_water: int = 1, topic: str = "a", source: str = "agent") -> Message:
    mark = BundleMark(HIGHEST, sequence, low_water)
    return Message("id", source, topic, b"", 1, False, None, NO_PROPERTIES, 0, offset, 0, bundle=mark)


def right_verdicts(log: list[Message]) -> list[str]:
    """A bundle is new where it stands first, unless an earlier one says that it is not alive."""
    verdicts, seen, low = [], set(), dict[str, int]()
    for one in log:
        assert one.bundle is not None
        place = one.topic, one.bundle.sequence
        is_new = place not in seen and one.bundle.sequence >= low.get(one.topic, 1)
        verdicts.append("new" if is_new else "duplicate")
        if is_new:
            seen.add(place)
            low[one.topic] = max(low.get(one.topic, 1), one.bundle.low_water)
    return verdicts


@st.composite
def logs(draw: st.DrawFn) -> list[Message]:
    """Copies of some bundles, those of a kind with the same mark, as their originator has signed it."""
    marks: dict[tuple[str, int], int] = {}
    for topic in TOPICS:
        low = 1
        for sequence in range(1, 9):
            low = draw(st.integers(low, sequence)) if draw(st.booleans()) else low
            marks[topic, sequence] = low
    places = draw(st.lists(st.sampled_from(sorted(marks)), min_size=1, max_size=40))
    return [message(offset, seq, marks[topic, seq], topic) for offset, (topic, seq) in enumerate(places)]


CRASHES = ("nothing is written", "facts without the positions", "all is written", "no crash")


@given(log=logs(), data=st.data())
def test_a_copy_is_judged_as_the_log_says_however_often_it_is_read(log: list[Message], data: st.DataObject) -> None:
    """Also when it comes by the other way, at once or after a crash."""
    right = right_verdicts(log)
    durable: dict[bytes, bytes] = {}
    committed = at = 0
    memory = TakenBundles()
    for _ in range(8):
        stop = data.draw(st.integers(at, len(log)))
        for offset in range(at, stop):
            for _ in range(data.draw(st.integers(1, 2))):
                assert memory.judge(log[offset]) == right[offset], f"at {offset}, committed {committed}"
        at = stop
        crash = data.draw(st.sampled_from(CRASHES))
        changed = memory.take_changed()
        if crash != CRASHES[0]:
            durable |= changed
        if crash in CRASHES[2:]:
            committed = at
        if crash == CRASHES[3]:
            memory.committed()
            if at and data.draw(st.booleans()):  # an instruction for what was delivered directly
                assert memory.judge(log[at - 1]) == right[at - 1]
        else:
            memory, at = TakenBundles(), committed
            memory.restore(durable.values())


def test_memory_is_bounded_by_what_is_alive() -> None:
    """M14: what is over is forgotten, and is still refused."""
    memory = TakenBundles()
    for offset in range(1_000):
        assert memory.judge(message(offset, offset + 1, max(1, offset - 9))) == "new"
        if offset % 10 == 9:
            (written,) = memory.take_changed().values()
            assert len(written) < 500
            memory.committed()
    assert memory.judge(message(2_000, 3)) == "duplicate"
    assert memory.judge(message(2_000, 500)) == "duplicate"


@pytest.mark.parametrize(
    ("limits", "fits", "beyond"),
    [
        (BundleLimits(sources=1), message(1, 2), message(2, 1, topic="b")),
        (BundleLimits(of_originator=1), message(1, 1, source="other"), message(2, 1, topic="b")),
        (BundleLimits(sequences=2), message(1, 2), message(2, 3)),
    ],
)
def test_beyond_a_limit_a_bundle_is_refused_and_never_comes_twice(
    limits: BundleLimits, fits: Message, beyond: Message
) -> None:
    memory = TakenBundles(limits)
    assert memory.judge(message(0, 1)) == "new"
    assert memory.judge(fits) == "new"
    assert memory.judge(beyond) == "full"
    assert memory.judge(message(9, 1)) == "duplicate"


def test_room_is_made_by_what_is_over() -> None:
    memory = TakenBundles(BundleLimits(sequences=2))
    verdicts = [memory.judge(message(offset, offset + 1, offset + 1)) for offset in range(9)]
    assert verdicts == ["new"] * 9


def test_the_changelog_keeps_it() -> None:
    """As records and back; a malformed one is an error of its own."""
    memory = TakenBundles()
    memory.judge(message(5, 7, 3))
    batch = SpoolBatch(bundles=memory.take_changed())
    records = records_of(batch, Marker(0, 0, {}))
    found, _ = batch_of(records)
    assert found.bundles == batch.bundles
    again = TakenBundles()
    again.restore(found.bundles.values())
    assert (again.judge(message(5, 7, 3)), again.judge(message(6, 7, 3)), len(again)) == ("new", "duplicate", 1)
    key, value = records[0]
    for broken in (None, b"", (value or b"")[:-1], b"\x96\x02" + (value or b"")[2:]):
        with pytest.raises(RecordError):
            batch_of([(key, broken)])
