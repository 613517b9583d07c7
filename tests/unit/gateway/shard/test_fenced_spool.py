"""Two owners of a shard write to the same changelog, and it ends as the last one's (G6, Q7, R4): whatever a stale one
writes between its records, whatever is compacted, wherever a reader begins or stops."""

import asyncio
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import SpoolError
from gateway.memory_bus import MemoryBroker, MemoryBus, MemoryRecord
from gateway.shard.changelog import Changelog, catch_up
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import MARKER_KEY, Marker, batch_of, records_of
from schemas.envelope import Instruction
from schemas.errors import RecordError
from schemas.fences import encode_fence, epoch_headers, epoch_of, fence_key
from schemas.leases import Claimant
from tests.draw import examples
from tests.unit.gateway.shard.home_harness import InlineSpools
from tests.unit.gateway.shard.test_spool_catch_up import message, observed
from tests.unit.gateway.shard.virtual_time import EPOCH, run

ME, OTHER = Claimant("me", 2), Claimant("other", 1)
PROPERTY = settings(max_examples=examples(80), deadline=None)


class Entry(NamedTuple):
    """A record of the log."""

    offset: int
    key: bytes
    value: bytes | None
    epoch: int

    def as_record(self) -> MemoryRecord:
        record = MemoryRecord(("spool", 0), self.key, self.value, epoch_headers(self.epoch))
        record.stored_at(self.offset, self.offset)
        return record


class Owner:
    """A home in `epoch` with a file of its own; it makes commits, whose records come to the log one by one."""

    def __init__(self, epoch: int, spool: Spool) -> None:
        self.epoch, self.spool = epoch, spool
        self.mid, self.row = spool.last_numbers()
        self.commits = 0

    def commit(self, session: str, rows: int, deleted: int) -> list[tuple[bytes, bytes | None]]:
        self.commits += 1
        batch = SpoolBatch(keyed={f"k{self.commits % 3}": (b"%d" % self.epoch, self.commits)})
        self.mid += 1
        batch.messages.append((self.mid, message(self.mid), [Instruction(0, self.mid, 0, 2, self.mid)]))
        for _ in range(rows):
            self.row += 1
            batch.rows.append((self.row, self.mid, session, 1, False, (), False))
        batch.deleted_rows += [row for row in range(max(1, self.row - deleted), self.row) if row % 2]
        batch.finished_clients[self.commits % 2, 0] = [f"{self.epoch} {self.commits}"]
        marker = Marker(self.row, self.mid, {"shard": b"%d/%d" % (self.epoch, self.commits)}, self.epoch)
        return records_of(batch, marker)


def apply(spool: Spool, reader: FencedPartition, chunk: list[Entry]) -> None:
    """As `catch_up` does it."""
    counting = [(e.key, e.value) for e in chunk if reader.take(e.as_record()) == "counts"]
    spool.commit(*batch_of(counting), chunk[-1].offset + 1, chunk[-1].offset + 1, reader.state)


def read(spool: Spool, log: list[Entry], data: st.DataObject, to: int | None = None) -> FencedPartition:
    """Reads on from where the file stands, in chunks cut anywhere; after each it may be opened again."""
    while True:
        reader = FencedPartition(0)
        reader.restore(*spool.fences())
        left = [e for e in log if e.offset >= spool.state().offset and (to is None or e.offset < to)]
        if not left:
            return reader
        apply(spool, reader, left[: data.draw(st.integers(1, len(left)), "chunk")])


def compacted(log: list[Entry], to: int) -> list[Entry]:
    """Removes all in front of `to` but the last of each key there."""
    last = {e.key: e.offset for e in log if e.offset < to}
    return [e for e in log if e.offset >= to or last[e.key] == e.offset]


def mendings(spool: Spool, reader: FencedPartition, epoch: int, log: list[Entry]) -> None:
    """What the owner writes for the keys that are not mended."""
    for key, value in spool.records(reader.fences.unmended):
        if value is None and key == MARKER_KEY:
            value = records_of(SpoolBatch(), Marker(0, 0, {}, epoch))[-1][1]
        entry = Entry(log[-1].offset + 1, key, value, epoch)
        log.append(entry)
        assert reader.take(entry.as_record()) == "counts"


COMMITS = st.lists(st.tuples(st.sampled_from("st"), st.integers(0, 3), st.integers(0, 4)), max_size=4)


@given(COMMITS, COMMITS, COMMITS, st.data())
@PROPERTY
def test_a_stale_owner_changes_nothing(
    before: list[tuple[str, int, int]],
    stale: list[tuple[str, int, int]],
    new: list[tuple[str, int, int]],
    data: st.DataObject,
) -> None:
    """Two epochs' commits, interleaved record by record behind the fence; compaction of what is old once it is mended;
    files that read from anywhere, or go on from anywhere: all end like the new owner's file."""
    with TemporaryDirectory() as directory:
        path = Path(directory)
        log = [Entry(0, fence_key(1), encode_fence(OTHER), 1)]

        def put(records: list[tuple[bytes, bytes | None]], epoch: int) -> list[Entry]:
            entries = [Entry(log[-1].offset + 1 + n, key, value, epoch) for n, (key, value) in enumerate(records)]
            log.extend(entries)
            return entries

        first = Owner(1, Spool(str(path / "first.sqlite")))
        for commit in before:
            put(first.commit(*commit), 1)
        standby = Spool(str(path / "standby.sqlite"))
        read(standby, log, data, to=data.draw(st.integers(0, len(log)), "the standby has read to"))
        late = [record for commit in stale for record in first.commit(*commit)]
        torn = data.draw(st.integers(0, len(late)), "stored in front of the fence")
        put(late[:torn], 1)
        late = late[torn:]
        put([(fence_key(2), encode_fence(ME))], 2)
        between = data.draw(st.integers(0, len(late)), "stored before the owner has read to the end")
        put(late[:between], 1)
        late = late[between:]

        spool = Spool(str(path / "second.sqlite"))
        owner_reader = read(spool, log, data)
        leftovers = spool.catch_up_end()
        mendings(spool, owner_reader, 2, log)
        read_to = log[-1].offset + 1
        put([(key, None) for key in leftovers.keys], 2)
        second = Owner(2, spool)
        assert (second.mid, second.row) == (leftovers.last_mid, leftovers.last_row)
        for commit in [*new, ("s", 1, 0)]:
            for record in second.commit(*commit):
                put([record], 2)
                some = data.draw(st.integers(0, min(3, len(late))), "stale ones behind it")
                put(late[:some], 1)
                late = late[some:]
            # the owner's file, as after a commit with a gap
            apply(spool, owner_reader, [e for e in log if e.offset >= read_to])
            mendings(spool, owner_reader, 2, log)
            read_to = log[-1].offset + 1
        put(late, 1)
        reader = FencedPartition(0)
        reader.restore(*owner_reader.state)
        for entry in [e for e in log if e.offset >= read_to]:
            reader.take(entry.as_record())
        mendings(spool, reader, 2, log)
        put([(fence_key(epoch), None) for epoch in reader.fences.removable()], 2)

        spool.catch_up_end()
        expected = essential(spool)
        log = compacted(log, data.draw(st.integers(0, len(log)), "compacted to"))
        for file, name in ((Spool(str(path / "fresh.sqlite")), "fresh"), (standby, "standby")):
            found = read(file, log, data)
            assert found.fences.unmended == [], name
            file.catch_up_end()
            assert essential(file) == expected, name


def essential(spool: Spool) -> dict[str, object]:
    """All that a spool answers, but for when and how it came to know it."""
    found = observed(spool)
    del found["age"], found["last numbers"]
    return found


class Shard:
    """The spool of shard 0 as its home uses it, in epoch 2 behind epoch 1, and others who write to the topic."""

    def __init__(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        self.broker = MemoryBroker(lambda: EPOCH + loop.time())
        self.bus = MemoryBus(self.broker, loop)
        self.log = self.broker.partitions["spool", 0]
        self.files = InlineSpools(directory, 1)
        self.confirmed = 0
        self.spool = ShardSpool(0, self.files.files[0], Changelog(self.bus, "spool", 0), asyncio.Event(), Counter())

    async def _confirm(self) -> None:
        self.confirmed += 1

    async def begin(self, epoch: int) -> None:
        file = self.spool.file
        found = await catch_up(self.bus, "spool", {0: file}, 0, lambda n: FencedPartition(n, epoch, ME))
        found.fenced[0].check()
        self.spool.begin(epoch, found.fenced[0], found.ends[0], self._confirm)
        await self.spool.start(found.leftovers[0])

    def put(self, key: bytes, value: bytes | None, epoch: int) -> None:
        self.broker.append(MemoryRecord(("spool", 0), key, value, epoch_headers(epoch)))

    async def commit(self, **positions: bytes) -> None:
        await self.spool.commit(self.spool.take(), positions)


def test_what_others_write_between_two_commits_is_noticed_and_mended(tmp_path: Path) -> None:
    """G6: by the gap in the offsets; also if nothing is to be committed for long. The file knows it in between."""

    async def scenario() -> None:
        shard = Shard(tmp_path)
        shard.put(fence_key(1), encode_fence(OTHER), 1)
        shard.put(fence_key(2), encode_fence(ME), 2)
        await shard.begin(2)
        shard.spool.add_message(message(1), [Instruction(0, 1, 0, 2, 1)])
        await shard.commit(a=b"1")
        [value] = [record.value() for record in shard.log if record.key() == b"m/1"]
        shard.put(b"m/1", None, 1)
        shard.put(b"c", b"stale", 1)
        shard.put(b"zzz", b"of no writer", 1)
        await shard.commit(a=b"2")
        assert shard.spool.file.fences() == ([2], [b"m/1", b"zzz"])
        assert shard.confirmed == 2
        await shard.commit(a=b"2")
        last = {record.key(): record for record in shard.log}
        assert {epoch_of(record.headers()) for record in last.values()} == {2}
        assert last[b"m/1"].value() == value
        assert shard.spool.file.fences() == ([2], [])
        end = len(shard.log)
        await shard.commit(a=b"2")
        assert len(shard.log) == end
        shard.put(b"m/1", None, 1)
        await asyncio.sleep(130)
        await shard.commit(a=b"2")
        await shard.commit(a=b"2")
        assert {record.key(): record for record in shard.log}[b"m/1"].value() == value
        again = Shard(tmp_path / "again")
        again.broker, again.bus, again.log = shard.broker, shard.bus, shard.log
        shard.broker.compact("spool", 0)
        again.put(fence_key(3), encode_fence(ME), 3)
        found = await catch_up(shard.bus, "spool", {0: again.spool.file}, 0, lambda n: FencedPartition(n, 3, ME))
        assert found.fenced[0].state == ([2, 3], [])
        assert again.spool.file.finished() == shard.spool.file.finished()
        assert len(found.malformed) == 0

    run(scenario())


def test_a_file_that_cannot_be_read_delays_mending_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6, G9: what is to be committed meanwhile is written at once."""

    def broken(*_: object) -> list[tuple[bytes, bytes | None]]:
        raise SpoolError("the disk cannot be read")

    async def scenario() -> None:
        shard = Shard(tmp_path)
        shard.put(fence_key(1), encode_fence(OTHER), 1)
        shard.put(fence_key(2), encode_fence(ME), 2)
        await shard.begin(2)
        shard.spool.add_message(message(1), [Instruction(0, 1, 0, 2, 1)])
        await shard.commit(a=b"1")
        [value] = [record.value() for record in shard.log if record.key() == b"m/1"]
        shard.put(b"m/1", None, 1)
        await shard.commit(a=b"2")
        assert shard.spool.file.fences() == ([2], [b"m/1"])
        shard.spool.add_message(message(2), [Instruction(0, 2, 0, 2, 1)])
        with monkeypatch.context() as patched:
            patched.setattr(Spool, "records", broken)
            await shard.commit(a=b"3")
        assert "m/2" in {record.key().decode() for record in shard.log}
        assert shard.spool.outage.reason == "the disk cannot be read"
        await shard.commit(a=b"3")
        assert {record.key(): record for record in shard.log}[b"m/1"].value() == value
        assert shard.spool.file.fences() == ([2], [])
        assert not shard.spool.outage.reason

    run(scenario())


def test_without_others_nothing_is_read_and_records_have_no_header(tmp_path: Path) -> None:
    async def scenario() -> None:
        shard = Shard(tmp_path)
        fenced = FencedPartition(0)
        shard.spool.begin(0, fenced, 0, None)
        await shard.commit(a=b"1")
        shard.put(b"k/x", None, 0)
        await shard.commit(a=b"2")
        assert [record.headers() for record in shard.log] == [None] * 3
        assert shard.spool.file.fences() == ([], [])

    run(scenario())


def test_a_source_of_feeds_that_only_a_void_record_had_is_removed() -> None:
    spool = Spool(":memory:")
    assert spool.records([b"s/x/0", b"r/1", b"r/x", b"k/\xff", b"f/1/x", b"c"]) == [
        (b"s/x/0", None),
        (b"r/1", None),
        (b"r/x", None),
        (b"k/\xff", None),
        (b"f/1/x", None),
        (b"c", None),
    ]
    batch, _ = batch_of([(b"s/x/0", None)])
    spool.commit(batch, None, 1, 1)
    assert spool.sources() == []
    with pytest.raises(RecordError):
        batch_of([(b"c", None)])
