"""What a shard remembers of bundles, against what the log alone says; over crashes between any two writes (M14)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.messages import Message
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker, batch_of, records_of
from gateway.shard.taken_bundles import BundleLimits, TakenBundles, checked
from mqtt.properties import NO_PROPERTIES
from schemas.envelope import BUNDLE_WINDOW, BundleMark
from schemas.errors import RecordError

RECIPIENTS = ("a", "@b")
HIGHEST = 2**64 - 1
NOW_S = 1_700_000_000.0
DAY_S = 86_400


def message(
    offset: int, sequence: int, low_water: int = 1, topic: str = "a", source: str = "agent", incarnation: int = HIGHEST
) -> Message:
    mark = BundleMark(incarnation, sequence, low_water, topic.startswith("@"))
    return Message("id", source, topic, b"", 1, False, None, NO_PROPERTIES, 0, offset, 0, bundle=mark)


def right_verdicts(log: list[Message]) -> list[bool]:
    """A bundle is new where it stands first, unless an earlier one says that it is not alive."""
    verdicts, seen, low = [], set(), dict[str, int]()
    for one in log:
        assert one.bundle is not None
        place = one.topic, one.bundle.sequence
        is_new = place not in seen and one.bundle.sequence >= low.get(one.topic, 1)
        verdicts.append(is_new)
        if is_new:
            seen.add(place)
            low[one.topic] = max(low.get(one.topic, 1), one.bundle.low_water)
    return verdicts


@st.composite
def logs(draw: st.DrawFn) -> list[Message]:
    """Copies of some bundles, those of a kind with the same mark, as their originator has signed it; and sequences that
    others lie between."""
    marks: dict[tuple[str, int], int] = {}
    for topic in RECIPIENTS:
        low = 1
        for sequence in sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=8))):
            low = draw(st.integers(low, sequence)) if draw(st.booleans()) else low
            marks[topic, sequence] = low
    places = draw(st.lists(st.sampled_from(sorted(marks)), min_size=1, max_size=40))
    return [message(offset, seq, marks[topic, seq], topic) for offset, (topic, seq) in enumerate(places)]


CRASHES = ("nothing is written", "facts without the positions", "all is written", "no crash")
FEW = BundleLimits(sources=1, envelopes=1, remembered_s=30 * DAY_S)


def keep(durable: dict[bytes, bytes], changed: dict[bytes, bytes | None]) -> None:
    for key, value in changed.items():
        if value is None:
            durable.pop(key, None)
        else:
            durable[key] = checked(key, value)


@given(log=logs(), data=st.data())
def test_a_copy_is_judged_as_the_log_says_however_often_it_is_read(log: list[Message], data: st.DataObject) -> None:
    """Also when it comes by the other way, at once or after a crash."""
    right = right_verdicts(log)
    durable: dict[bytes, bytes] = {}
    committed = at = 0
    memory = TakenBundles(FEW)
    for _ in range(8):
        stop = data.draw(st.integers(at, len(log)))
        for offset in range(at, stop):
            for _ in range(data.draw(st.integers(1, 2))):
                assert memory.is_new(log[offset], NOW_S) == right[offset], f"at {offset}, committed {committed}"
        at = stop
        crash = data.draw(st.sampled_from(CRASHES))
        changed = memory.take_changed()
        if crash != CRASHES[0]:
            keep(durable, changed)
        if crash in CRASHES[2:]:
            committed = at
        if crash == CRASHES[3]:
            memory.committed()
            if at and data.draw(st.booleans()):  # an instruction for what was delivered directly
                assert memory.is_new(log[at - 1], NOW_S) == right[at - 1]
        else:
            memory, at = TakenBundles(FEW), committed
            memory.restore(durable.values())


def test_memory_is_bounded_by_what_is_alive() -> None:
    """M14: what is over is forgotten, and is still refused."""
    memory = TakenBundles()
    for offset in range(1_000):
        assert memory.is_new(message(offset, offset + 1, max(1, offset - 9)), NOW_S)
        if offset % 10 == 9:
            (written,) = memory.take_changed().values()
            assert written is not None
            assert len(written) < 500
            memory.committed()
    assert not memory.is_new(message(2_000, 3), NOW_S)
    assert not memory.is_new(message(2_000, 500), NOW_S)


def test_a_backlog_as_long_as_the_window_is_taken_whole_and_once() -> None:
    """M14: an agent that was away for long says of all its messages that the first is alive. None of them is dropped,
    and each takes a bit once a checkpoint covers it."""
    memory = TakenBundles()
    sequences = [*range(1, 100_001), BUNDLE_WINDOW]
    for start in range(0, len(sequences), 10_000):
        part = sequences[start : start + 10_000]
        assert all(memory.is_new(message(start + n, sequence), NOW_S) for n, sequence in enumerate(part))
        memory.take_changed()
        memory.committed()
    assert memory.is_new(message(200_000, 1, topic="@b"), NOW_S)
    assert memory.is_new(message(200_001, BUNDLE_WINDOW + 1, 2), NOW_S)
    written = [value for value in memory.take_changed().values() if value is not None]
    assert all(len(value) <= BUNDLE_WINDOW // 8 + 100 for value in written)
    again = TakenBundles()
    again.restore(written)
    for known in (memory, again):
        assert not any(known.is_new(message(300_000 + s, s), NOW_S) for s in sequences)
        assert known.is_new(message(500_000, 100_001), NOW_S)


def test_topics_do_not_count_and_recipients_have_marks_of_their_own() -> None:
    """M14: the mark of an envelope says nothing of messages to the platform, whatever their destination is."""
    memory = TakenBundles(FEW)
    assert all(memory.is_new(message(n, n + 1, topic=f"topic/{n}"), NOW_S) for n in range(2_000))
    assert len(memory) == 1
    envelope = message(2_001, 3_001, 3_001, topic="@b")
    assert memory.is_new(envelope, NOW_S)
    to_plain_client = msgspec.structs.replace(message(2_002, 3_000, topic="@b"), bundle=BundleMark(HIGHEST, 3_000, 1))
    assert memory.is_new(to_plain_client, NOW_S)


def test_beyond_the_limit_only_what_is_not_used_for_long_is_forgotten() -> None:
    """M14: nothing that has a receipt is dropped or comes twice, also when there are more sources than foreseen."""
    memory = TakenBundles(FEW)
    durable: dict[bytes, bytes] = {}
    times = (NOW_S, NOW_S + DAY_S, NOW_S + 2 * DAY_S)
    for n, at in enumerate(times):
        assert memory.is_new(message(n, 1, source=f"agent{n}"), at)
    assert len(memory) == 3
    keep(durable, memory.take_changed())
    memory.committed()
    assert not any(memory.is_new(message(9, 1, source=f"agent{n}"), NOW_S + 29 * DAY_S) for n in range(3))
    assert memory.is_new(message(10, 1, source="agent3"), NOW_S + 31.5 * DAY_S)
    assert len(memory) == 2  # two were unused for longer than 30 days
    keep(durable, memory.take_changed())
    memory.committed()
    again = TakenBundles(FEW)
    again.restore(durable.values())
    assert sorted(again.stores()) == sorted(memory.stores())
    assert [name for name, _, _ in again.stores()] == ["agent2", "agent3"]


def test_envelopes_are_forgotten_because_their_recipients_remember() -> None:
    memory = TakenBundles(FEW)
    assert memory.is_new(message(1, 1), NOW_S)
    assert all(memory.is_new(message(n, 1, topic=f"@{n}"), NOW_S) for n in range(5))
    assert len(memory) == 2
    assert not memory.is_new(message(9, 1, topic="@4"), NOW_S)
    assert not memory.is_new(message(9, 1), NOW_S)


def test_the_changelog_keeps_it() -> None:
    """As records and back; a malformed one is an error of its own."""
    memory = TakenBundles()
    memory.is_new(message(4, 6, 3), NOW_S)
    memory.take_changed()
    memory.committed()
    memory.is_new(message(5, 7, 3), NOW_S)
    batch = SpoolBatch(bundles=memory.take_changed() | {b"gone": None})
    records = records_of(batch, Marker(0, 0, {}))
    found, _ = batch_of(records)
    assert found.bundles == batch.bundles
    again = TakenBundles()
    again.restore(value for value in found.bundles.values() if value is not None)
    copies = [message(5, 7, 3), message(6, 7, 3), message(7, 6, 3), message(8, 8, 3)]
    assert [again.is_new(one, NOW_S) for one in copies] == [True, False, False, True]
    assert len(again) == 1
    key, value = next(record for record in records if record[1] is not None)
    far = msgspec.msgpack.decode(value or b"")
    far[8] = [(BUNDLE_WINDOW + 3, 1)]
    for broken in (b"", (value or b"")[:-1], b"\x99\x02" + (value or b"")[2:], msgspec.msgpack.encode(far)):
        with pytest.raises(RecordError):
            batch_of([(key, broken)])
