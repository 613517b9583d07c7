"""Writing fences, and reading partitions by them (G6, Q7)."""

import asyncio
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BusError, Outranked, ShardLost
from gateway.memory_bus import MemoryBroker, MemoryBus, MemoryRecord
from gateway.record import Record
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.fences import write_fences
from schemas.fences import encode_fence, epoch_headers, fence_key
from schemas.leases import Claimant
from schemas.topics import Topics
from tests.draw import examples
from tests.unit.gateway.shard.virtual_time import EPOCH, run

ME, OTHER = Claimant("me", 1), Claimant("other", 1)


def record(key: bytes, epoch: int, value: bytes | None = b"v") -> MemoryRecord:
    return MemoryRecord(("sessions", 0), key, value, epoch_headers(epoch))


def fence(epoch: int, claimant: Claimant = OTHER) -> MemoryRecord:
    return record(fence_key(epoch), epoch, encode_fence(claimant))


def test_fences_on_spool_are_written_once_those_on_sessions_are_stored() -> None:
    """Q7: a commit behind a fence on `spool` has its barrier behind that on `sessions`."""

    async def scenario() -> None:
        loop, topics = asyncio.get_running_loop(), Topics("")
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus = MemoryBus(broker, loop)
        bus.held_acks = {topics.sessions}
        writing = loop.create_task(write_fences(bus, topics, {0: 3, 2: 5}, ME))
        await asyncio.sleep(1)
        assert [len(broker.partitions[topics.sessions, shard]) for shard in range(3)] == [1, 0, 1]
        assert not any(broker.partitions[topics.spool, shard] for shard in range(3))
        bus.held_acks, bus.held_stores = set(), {topics.spool}
        bus.release()
        await asyncio.sleep(1)
        assert not writing.done()
        bus.held_stores = set()
        bus.release()
        await writing
        for topic in (topics.sessions, topics.spool):
            [found] = broker.partitions[topic, 2]
            assert (found.key(), found.headers()) == (fence_key(5), [("epoch", b"5")])
        bus.refused[topics.spool] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BusError, match="cannot write to the topic spool"):
            await write_fences(bus, topics, {0: 4}, ME)

    run(scenario())


def test_a_lower_epoch_behind_a_fence_is_void_until_the_key_is_written_again() -> None:
    reader = FencedPartition(0)
    assert reader.take(record(b"a", 0)) == "counts"
    assert reader.take(record(b"a", 1)) == "counts"
    assert reader.take(fence(2)) == "fence"
    assert reader.take(record(b"a", 1, None)) == "void"
    assert reader.take(record(b"b", 0)) == "void"
    assert reader.state == ([2], [b"a", b"b"])
    assert reader.take(record(b"a", 2)) == "counts"
    assert reader.take(record(b"b", 3, None)) == "counts"
    assert reader.state == ([2], [])


def test_a_reader_goes_on_where_another_has_stopped() -> None:
    """In the middle of the topic, with void records before and behind."""
    records = [fence(1), record(b"a", 1), fence(3), record(b"a", 1), record(b"b", 2), record(b"a", 3), fence(2)]
    records += [record(b"c", 2), record(fence_key(1), 3, None), record(b"b", 3, None), record(b"c", 1)]
    whole = FencedPartition(0)
    verdicts = [whole.take(one) for one in records]
    for at in range(len(records) + 1):
        first, second = FencedPartition(0), FencedPartition(0)
        found = [first.take(one) for one in records[:at]]
        second.restore(*first.state)
        assert found + [second.take(one) for one in records[at:]] == verdicts
        assert second.state == whole.state == ([2, 3], [b"c"])


def test_a_malformed_fence_is_reported_and_has_no_effect() -> None:
    malformed: list[tuple[Record, str]] = []
    reader = FencedPartition(0, malformed=lambda one, reason: malformed.append((one, reason)))
    bad = record(fence_key(9), 9, b"{")
    assert reader.take(bad) == "malformed"
    assert reader.take(record(b"fence/x", 9)) == "malformed"
    assert reader.take(record(b"a", 1)) == "counts"
    assert malformed[0][0] is bad
    assert len(malformed) == 2


def test_an_epoch_that_is_not_the_owners_alone_is_outranked() -> None:
    """The same epoch of somebody else, or a higher one, before its own fence; behind it, it has no effect or means that
    the shard is lost."""
    for before in ([fence(2)], [fence(3)], [fence(2, ME._replace(boot=2))]):
        reader = FencedPartition(0, 2, ME)
        for one in [*before, fence(2, ME)]:
            reader.take(one)
        with pytest.raises(Outranked):
            reader.check()
    for behind, lost in (([fence(2)], False), ([fence(1)], False), ([fence(3)], True)):
        reader = FencedPartition(0, 2, ME)
        for one in [fence(1), fence(2, ME), *behind]:
            reader.take(one)
        if lost:
            with pytest.raises(ShardLost):
                reader.check()
        else:
            reader.check()


def test_its_own_fence_twice_does_no_harm_and_none_is_an_error() -> None:
    reader = FencedPartition(0, 2, ME)
    reader.take(fence(1))
    with pytest.raises(BusError, match="is not to be found"):
        reader.check()
    for one in (fence(2, ME), record(b"a", 2), fence(2), fence(2, ME)):
        reader.take(one)
    reader.check()


def test_a_stale_removal_of_a_fence_is_void() -> None:
    reader = FencedPartition(0)
    for one in (fence(1), fence(2), fence(3)):
        reader.take(one)
    assert reader.take(record(fence_key(1), 2, None)) == "void"
    assert reader.fences.removable() == []
    assert reader.take(record(fence_key(1), 3, None)) == "removal"
    assert reader.fences.fences == [2, 3]
    reader.wrote(fence_key(2))
    reader.epoch = 3
    assert reader.fences.fences == [3]


WRITES = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.sampled_from([b"1", b"2"])), max_size=8)


def values(log: Sequence[MemoryRecord], state: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], FencedPartition]:
    """What a reader of the session log has in the end, which began with `state`."""
    reader, found = FencedPartition(0), dict(state)
    for one in log:
        if reader.take(one) == "counts":
            key, value = one.key() or b"", one.value()
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
    return found, reader


@given(WRITES, WRITES, WRITES, st.data())
@settings(max_examples=examples(200), deadline=None)
def test_two_epochs_on_one_log_end_as_the_new_one_says(
    before: list[tuple[bytes, bytes | None]],
    stale: list[tuple[bytes, bytes | None]],
    new: list[tuple[bytes, bytes | None]],
    data: st.DataObject,
) -> None:
    """G6, Q7: records interleaved in any way behind the fence, what is void written again whenever it is read, the log
    compacted up to anywhere: a reader ends with what counts."""
    log = [fence(1), *(record(key, 1, value) for key, value in before)]
    torn = data.draw(st.integers(0, len(stale)), "stored in front of the fence")
    log += [*(record(key, 1, value) for key, value in stale[:torn]), fence(2, ME)]
    late = [record(key, 1, value) for key, value in stale[torn:]]
    between = data.draw(st.integers(0, len(late)), "stored before the owner has read")
    log += late[:between]
    owned, reader = values(log, {})
    fresh = [record(key, 2, owned.get(key)) for key in reader.fences.unmended]
    fresh += [record(key, 2, value) for key, value in new]
    late = late[between:]
    for key, value in new:
        owned.pop(key, None) if value is None else owned.update({key: value})
    while fresh or late:
        is_late = bool(late) and (not fresh or data.draw(st.booleans(), "a stale one"))
        log.append((late if is_late else fresh).pop(0))
        reader.take(log[-1])
    present, reader = values(log, {})
    assert present == owned
    log += [record(key, 2, owned.get(key)) for key in reader.fences.unmended]
    for number, one in enumerate(log):
        one.stored_at(number, number)
    to = data.draw(st.integers(0, len(log)), "compacted to")
    last = {one.key(): one for one in log[:to]}
    kept = [one for one in log if one.offset() >= to or last[one.key()] is one]
    found, reader = values(kept, {})
    assert found == owned
    assert reader.fences.unmended == []
