"""When a home acts on what it has written, and that it does not once another has the shard (G7, Q1, Q7)."""

import asyncio
from functools import partial

import pytest

from gateway.errors import ShardLost
from gateway.memory_bus import MemoryBroker, MemoryBus
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.promises import Promises
from gateway.shard.sessions_reader import SessionsReader
from schemas.fences import encode_fence, epoch_headers, fence_key
from schemas.leases import Claimant
from schemas.session_log import SessionKey
from tests.unit.gateway.shard.virtual_time import EPOCH, run

TOPIC = "sessions"
KEY = SessionKey("client", "o").encode()


class One:
    """The writer of shard 1 in epoch 5, and somebody else with a bus of its own."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.broker = MemoryBroker(lambda: EPOCH + loop.time())
        self.bus, self.others = MemoryBus(self.broker, loop), MemoryBus(self.broker, loop)
        self.lost: list[int] = []
        self.fatal: list[Exception] = []
        self.mended: list[bytes] = []
        self.done: list[str] = []
        self.reader = SessionsReader(self.bus, TOPIC)
        self.promises = Promises(1, self.reader, lambda shard, _epoch, _fence: self.lost.append(shard))
        self.writer = SessionLogWriter(self.bus, TOPIC, 1, self.fatal.append, self.promises)
        self.log = self.broker.partitions[TOPIC, 1]

    async def begin(self) -> "One":
        await self.by_others(fence_key(5), encode_fence(Claimant("me", 1)), 5)
        fenced = FencedPartition(1, 5, Claimant("me", 1))
        fenced.take(self.log[0])
        fenced.check()
        self.writer.begin(5)
        await self.promises.begin(fenced, 1, self.writer.write_barrier, self._mend, partial(self._rewrite, None))
        self.promises.serve()
        return self

    def _mend(self, key: bytes) -> None:
        self.mended.append(key)
        self._rewrite(b"again", key)

    def _rewrite(self, value: bytes | None, key: bytes) -> None:
        self.writer.rewrite(key, value)

    async def by_others(self, key: bytes, value: bytes | None, epoch: int) -> None:
        self.others.produce(TOPIC, 1, key, value, epoch_headers(epoch), lambda _error, _record: None)
        await asyncio.sleep(0.1)

    def note(self, what: str) -> None:
        self.done.append(what)

    def waits(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self.writer.durable(self.writer.write_barrier))


def test_alone_a_record_counts_once_it_is_stored() -> None:
    """Nothing is read, and nothing waits for a barrier."""

    async def scenario() -> None:
        one = One()
        await one.waits()
        one.promises.after_barrier(partial(one.note, "at once"))
        assert one.done == ["at once"]
        assert [record.headers() for record in one.log] == [None]
        assert not one.bus._followers

    run(scenario())


def test_among_others_it_counts_once_it_is_read_back() -> None:
    async def scenario() -> None:
        one = await One().begin()
        one.bus.held_follows = {TOPIC}
        waiting = one.waits()
        await asyncio.sleep(1)
        assert len(one.log) == 2
        assert not waiting.done()
        one.bus.held_follows = set()
        one.bus.release()
        await waiting
        assert one.log[1].headers() == [("epoch", b"5")]

    run(scenario())


def test_the_acknowledgement_may_come_behind_the_record() -> None:
    async def scenario() -> None:
        one = await One().begin()
        one.bus.held_acks = {TOPIC}
        waiting = one.waits()
        await asyncio.sleep(1)
        assert not waiting.done()
        one.bus.held_acks = set()
        one.bus.release()
        await waiting

    run(scenario())


@pytest.mark.parametrize("step", ["not stored", "not acknowledged", "not read back", "in front of it"])
def test_behind_a_higher_fence_nothing_is_promised(step: str) -> None:
    """Q7: wherever its record is by then. Whoever waits gets ShardLost; what is asked afterwards too. What stands in
    front of the fence counts."""

    async def scenario() -> None:
        one = await One().begin()
        await one.waits()
        fence = fence_key(6), encode_fence(Claimant("other", 1)), 6
        one.bus.held_follows = {TOPIC}
        if step == "not stored":
            one.bus.held_stores = {TOPIC}
        elif step == "not acknowledged":
            one.bus.held_acks = {TOPIC}
        if step not in ("not stored", "in front of it"):
            await one.by_others(*fence)
        waiting = one.waits()
        one.promises.after_barrier(partial(one.note, "first"))
        one.writer.barrier(partial(one.note, "second"))
        await asyncio.sleep(1)
        if step in ("not stored", "in front of it"):
            await one.by_others(*fence)
        one.bus.held_stores, one.bus.held_acks = set(), set()
        one.bus.release()
        await asyncio.sleep(1)
        assert not waiting.done()
        one.bus.held_follows = set()
        one.bus.release()
        await asyncio.sleep(1)
        if step == "in front of it":
            await waiting
        else:
            with pytest.raises(ShardLost):
                await waiting
        assert one.done == (["first"] if step == "in front of it" else [])
        assert one.lost == [1]
        with pytest.raises(ShardLost):
            await one.waits()
        with pytest.raises(ShardLost):
            one.writer.check()
        end = len(one.log)
        one.promises.after_barrier(partial(one.note, "never"))
        one.writer.write_barrier(partial(one.note, "never"))
        await asyncio.sleep(1)
        assert (len(one.log), one.fatal, "never" in one.done) == (end, [], False)

    run(scenario())


def test_one_barrier_serves_all_that_wait_when_it_is_written() -> None:
    """Q1: the next is written when it is back, at once; none for nobody."""

    async def scenario() -> None:
        one = await One().begin()
        one.bus.held_follows = {TOPIC}
        for n in range(10):
            one.promises.after_barrier(partial(one.note, f"{n}"))
        await asyncio.sleep(1)
        assert len(one.log) == 2
        one.bus.held_follows = set()
        one.bus.release()
        await asyncio.sleep(1)
        assert one.done == [f"{n}" for n in range(10)]
        assert len(one.log) == 3
        await asyncio.sleep(10)
        assert len(one.log) == 3

    run(scenario())


def test_stale_records_are_written_again_at_once_and_fences_of_earlier_epochs_removed_then() -> None:
    async def scenario() -> None:
        one = await One().begin()
        await one.by_others(fence_key(4), encode_fence(Claimant("other", 1)), 4)
        one.bus.held_stores = {TOPIC}
        await one.by_others(KEY, b"stale", 4)
        await one.by_others(KEY, b"fresh", 5)
        await one.by_others(KEY, None, 0)
        await asyncio.sleep(1)
        assert one.mended == [KEY, KEY]
        one.bus.held_stores = set()
        one.bus.release()
        await asyncio.sleep(1)
        last = {record.key(): record for record in one.log}
        assert (last[KEY].value(), last[KEY].headers()) == (b"again", [("epoch", b"5")])
        assert last[fence_key(4)].value() is None
        assert last[fence_key(5)].value() is not None
        assert one.lost == []

    run(scenario())


def test_what_becomes_void_before_the_home_has_its_state_waits_for_that() -> None:
    """G6: else a tombstone would take the place of a session that is not read yet."""

    async def scenario() -> None:
        one = One()
        await one.by_others(fence_key(5), encode_fence(Claimant("me", 1)), 5)
        fenced = FencedPartition(1, 5)
        fenced.take(one.log[0])
        one.writer.begin(5)
        await one.promises.begin(fenced, 1, one.writer.write_barrier, one._mend, one.mended.append)
        await one.by_others(KEY, b"stale", 4)
        await one.waits()
        assert one.mended == []
        one.promises.serve()
        assert one.mended == [KEY]
        await one.waits()
        assert fenced.fences.unmended == []

    run(scenario())


def test_a_cancelled_wait_and_an_end_leave_nothing_behind() -> None:
    async def scenario() -> None:
        one = await One().begin()
        one.bus.held_follows = {TOPIC}
        cancelled, waiting = one.waits(), one.waits()
        await asyncio.sleep(1)
        cancelled.cancel()
        await one.promises.end()
        with pytest.raises(ShardLost):
            await waiting
        one.bus.held_follows = set()
        await one.by_others(fence_key(6), encode_fence(Claimant("other", 1)), 6)
        assert one.lost == [], "it reads no more"
        again = Promises(1, one.reader, lambda shard, _epoch, _fence: one.lost.append(shard))
        fenced = FencedPartition(1, 6)
        fenced.restore([5, 6], [])
        writer = SessionLogWriter(one.bus, TOPIC, 1, one.fatal.append, again)
        writer.begin(6)
        await again.begin(fenced, len(one.log), writer.write_barrier, one.mended.append, one.mended.append)
        await one.promises.end()  # the earlier one, once more
        await writer.durable(writer.barrier)

    run(scenario())
