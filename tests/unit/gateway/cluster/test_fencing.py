"""Fences: what counts, what is void, what has to be mended (G6, G7, Q6, Q7, Q8)."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cluster.fencing import PartitionFences, SenderFences
from gateway.cluster.read_back import Barriers, ReadBack

events = st.lists(st.tuples(st.sampled_from(("fence", "record")), st.integers(1, 5), st.sampled_from((b"k", b"l"))))


@settings(deadline=None)
@given(events)
def test_a_record_is_void_behind_a_higher_fence_only(log: list[tuple[str, int, bytes]]) -> None:
    fences, highest, last_is_void = PartitionFences(), 0, {}
    for kind, epoch, key in log:
        if kind == "fence":
            assert fences.read_fence(epoch) == (epoch > highest)
            highest = max(highest, epoch)
        else:
            counts = fences.read(key, epoch)
            assert counts == (epoch >= highest)
            last_is_void[key] = not counts
    assert fences.epoch == highest
    assert set(fences.unmended) == {key for key, is_void in last_is_void.items() if is_void}


def test_fences_may_be_removed_once_all_keys_are_mended() -> None:
    fences = PartitionFences()
    fences.read_fence(1)
    fences.read_fence(3)
    assert fences.removable() == [1]
    assert not fences.read(b"k", 1)
    assert fences.removable() == []
    assert fences.read(b"k", 3)
    assert (fences.removable(), fences.unmended) == ([1], [])
    fences.fence_removed(1)
    assert fences.removable() == []


def test_homes_drop_qos_2_qos_0_and_wills_of_a_lower_epoch_behind_the_fence_of_the_sender_s_shard() -> None:
    fences = SenderFences()
    fences.read_fence(0, 10, [(4, 2), (5, 7)])
    assert fences.is_dropped(0, 11, 4, 1, 2, False)
    assert fences.is_dropped(0, 11, 4, 1, 0, False)
    assert fences.is_dropped(0, 11, 4, 1, 1, True)
    assert not fences.is_dropped(0, 11, 4, 1, 1, False), "late copies at QoS 1 pass"
    assert not fences.is_dropped(0, 11, 4, 2, 2, False)
    assert not fences.is_dropped(0, 9, 4, 1, 2, False), "it stands before the fence, whenever it is read"
    assert not fences.is_dropped(1, 11, 4, 1, 2, False), "another partition"
    assert not fences.is_dropped(0, 11, 6, 1, 2, False), "another shard"
    fences.read_fence(0, 12, [(4, 1)])
    assert fences.epoch_at(0, 20, 4) == 2, "a lower fence has no effect"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6)), max_size=12), st.integers(0, 14))
def test_a_reader_that_goes_on_from_a_position_drops_the_same(fenced: list[tuple[int, int]], position: int) -> None:
    whole = SenderFences()
    for offset, (shard, epoch) in enumerate(fenced):
        whole.read_fence(0, offset, [(shard, epoch)])
    again = SenderFences(whole.seen({0: position}))
    for offset, (shard, epoch) in enumerate(fenced):
        if offset >= position:
            again.read_fence(0, offset, [(shard, epoch)])
    for offset in range(position, 16):
        for shard in (0, 1):
            assert again.epoch_at(0, offset, shard) == whole.epoch_at(0, offset, shard)
    for fences in whole.seen({0: position}).get(0, {}).values():
        assert len([fence for fence in fences if fence.offset < position]) <= 1, "what is stored does not grow"


def test_a_promise_holds_once_its_record_is_read_back() -> None:
    read_back: ReadBack[str] = ReadBack(2)
    assert read_back.stored(5, "a") == []
    assert read_back.read(4) == []
    assert read_back.read(5) == ["a"]
    assert read_back.stored(5, "late report") == ["late report"]
    assert read_back.stored(7, "b") == []
    assert read_back.fence(6, 1) == [], "a lower fence ends nothing"
    assert read_back.read(7) == ["b"]


def test_a_higher_fence_ends_what_stands_behind_it() -> None:
    read_back: ReadBack[str] = ReadBack(2)
    read_back.stored(5, "before")
    read_back.stored(7, "behind")
    assert read_back.fence(6, 3) == ["before"]
    assert read_back.is_over
    assert read_back.read(7) == read_back.stored(8, "more") == []
    assert len(read_back) == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 20))
def test_promises_hold_in_order_and_only_before_the_fence(gaps: list[int], fence: int) -> None:
    read_back, held, offsets = ReadBack[int](1), [], []
    at = -1
    for gap in gaps:
        at += gap + 1
        offsets.append(at)
        held += read_back.stored(at, at)
    for offset in range(at + 2):
        held += read_back.fence(offset, 2) if offset == fence else read_back.read(offset)
    assert held == [offset for offset in offsets if offset < fence]


def test_one_barrier_serves_all_that_wait() -> None:
    barriers: Barriers[str] = Barriers()
    assert barriers.add("a")
    assert not barriers.add("b")
    assert barriers.take() == ["a", "b"]
    assert (len(barriers), barriers.take()) == (0, [])
    assert barriers.add("c")


fences = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(1, 6)), max_size=12)


@settings(deadline=None)
@given(fences, st.randoms(), st.integers(0, 14))
def test_it_does_not_matter_in_which_order_and_how_often_fences_are_read(
    fenced: list[tuple[int, int, int]], random: Random, position: int
) -> None:
    """A home reads them on `egress`, on `ingress`, and at its start."""
    in_order, in_any_order = SenderFences(), SenderFences()
    for offset, shard, epoch in sorted(fenced):
        in_order.read_fence(0, offset, [(shard, epoch)])
    again = [*fenced, *random.sample(fenced, len(fenced) // 2)]
    random.shuffle(again)
    for offset, shard, epoch in again[: len(again) // 2]:
        in_any_order.read_fence(0, offset, [(shard, epoch)])
    in_any_order.forget({0: position})
    for offset, shard, epoch in again[len(again) // 2 :]:
        in_any_order.read_fence(0, offset, [(shard, epoch)])
    for offset in range(position, 16):
        for shard in (0, 1):
            assert in_any_order.epoch_at(0, offset, shard) == in_order.epoch_at(0, offset, shard)
    for offset in range(16):
        for shard in (0, 1):
            highest = max((e for o, s, e in fenced if s == shard and o < offset), default=0)
            assert in_order.epoch_at(0, offset, shard) == highest
