"""A standby's file is at any moment what the changelog says up to there (Q7, Q9), and it says when it is warm."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import SpoolError
from gateway.memory_bus import MemoryBroker, MemoryBus, MemoryRecord
from gateway.record import Record
from gateway.shard import standby
from gateway.shard.changelog import catch_up
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.session_values import SessionValues
from gateway.shard.shard_spool import SpoolThread
from gateway.shard.spool import Spool
from gateway.shard.spool_records import Marker, row_key
from gateway.shard.standby import Standbys
from schemas.topics import DAY_MS, Topics
from tests.unit.gateway.shard.test_spool_catch_up import COMMITS, PROPERTY, Commit, Writer, observed
from tests.unit.gateway.shard.virtual_time import EPOCH, run

SHARDS = 2
TOPICS = Topics("p.")
SOON_S = 2.0


class InlineThread(SpoolThread):
    """Runs on the loop, one turn later, or when `held` is done; `fails` as often with a full disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(Spool(str(path)), ThreadPoolExecutor(1))  # which is not used
        self.fails = 0
        self.calls = 0
        self.held: asyncio.Future[None] | None = None

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        self.calls += 1
        if self.held is not None:
            await self.held
        if self.fails:
            self.fails -= 1
            raise SpoolError("disk full")
        result = method(self.spool, *arguments)
        await asyncio.sleep(0)
        return result


class Site:
    """A broker with the changelogs of owners, and one gateway that is a standby; it can be killed and started again."""

    def __init__(self, directory: Path, sessions_bytes: int = 1_000_000) -> None:
        self.loop = asyncio.get_running_loop()
        self.broker = MemoryBroker(self.clock)
        self.directory = directory
        self.sessions_bytes = sessions_bytes
        self.writers = [Writer(Spool(":memory:"), []) for _ in range(SHARDS)]
        self.malformed: list[tuple[int, str]] = []
        self.fatal: list[Exception] = []
        self.start()

    def clock(self) -> float:
        return EPOCH + self.loop.time()

    def start(self) -> None:
        self.bus = MemoryBus(self.broker, self.loop)
        self.files = {n: InlineThread(self.directory / f"{n}.sqlite") for n in range(SHARDS)}
        self.standbys = Standbys(
            self.bus, TOPICS, self.files, self.sessions_bytes, self.clock, self.note, self.fatal.append
        )

    def note(self, record: Record, reason: str) -> None:
        self.malformed.append((record.offset(), reason))

    def kill(self) -> None:
        """Whatever the standby is doing, no more comes of it."""
        self.bus.crash()
        for shard in self.files:
            self.standbys.unfollow(shard)
        for file in self.files.values():
            file.close()

    def commits(self, shard: int, commit: Commit, most: int | None = None) -> None:
        """The owner's commit; only the first `most` records of it are stored, since it dies then."""
        for key, value in self.writers[shard].commit(commit)[:most]:
            self.append(TOPICS.spool, shard, key, value)

    def append(self, topic: str, shard: int, key: bytes, value: bytes | None) -> None:
        self.broker.append(MemoryRecord((topic, shard), key, value, None))

    async def taken_over(self, shard: int) -> Spool:
        """What the home finds."""
        await self.standbys.release(shard)
        file = self.files[shard].spool
        await catch_up(self.bus, TOPICS.spool, {shard: file}, int(self.clock() * 1000))
        return file

    async def from_zero(self, shard: int) -> Spool:
        fresh = Spool(":memory:")
        await catch_up(self.bus, TOPICS.spool, {shard: fresh}, int(self.clock() * 1000))
        return fresh


def in_site(scenario: Callable[[Site], Any], **options: Any) -> None:
    async def scene() -> None:
        with TemporaryDirectory() as directory:
            site = Site(Path(directory), **options)
            await scenario(site)
            await site.standbys.stop(1.0)
            assert not site.fatal

    run(scene())


ONE = Commit([["s"], ["s", "t"]])

STEPS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 1), COMMITS),
    st.tuples(st.just("half"), st.integers(0, 1), COMMITS, st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from((0.0, 0.1, 0.59, 0.61, 3.0))),
    st.tuples(st.just("turns"), st.integers(1, 12)),
    st.tuples(st.sampled_from(("follow", "unfollow", "release", "full", "compact")), st.integers(0, 1)),
    st.tuples(st.just("kill")),
)


@PROPERTY
@given(st.lists(STEPS, max_size=25))
def test_whenever_it_is_interrupted_the_home_finds_what_reading_all_gives(steps: list[Any]) -> None:
    """Q7: commits in pieces, a kill in the middle, a release in the middle, a disk that is full for a while."""

    async def scenario(site: Site) -> None:
        died = set[int]()
        for step in steps:
            match step:
                case ["commit", shard, commit] if shard not in died:
                    site.commits(shard, commit)
                case ["half", shard, commit, most] if shard not in died:
                    died.add(shard)
                    site.commits(shard, commit, most)
                case ["wait", seconds]:
                    await asyncio.sleep(seconds)
                case ["turns", turns]:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                case ["follow", shard]:
                    site.standbys.follow(shard)
                case ["unfollow", shard]:
                    site.standbys.unfollow(shard)
                case ["release", shard]:
                    await site.standbys.release(shard)
                    before = observed(site.files[shard].spool)
                    await asyncio.sleep(1)
                    assert observed(site.files[shard].spool) == before, "it is at rest"
                case ["full", shard]:
                    site.files[shard].fails = 2
                case ["compact", shard]:
                    keep_last_of_each_key(site, shard)
                case ["kill"]:
                    site.kill()
                    site.start()
        for shard in range(SHARDS):
            site.files[shard].fails = 0
            assert observed(await site.taken_over(shard)) == observed(await site.from_zero(shard))
        assert not site.malformed

    in_site(scenario)


def keep_last_of_each_key(site: Site, shard: int) -> None:
    """As Kafka does it; tombstones stay, for nobody is too old."""
    records = site.broker.partitions[TOPICS.spool, shard]
    last = {record.key(): record for record in records}
    for record in records:
        record.is_removed = record.is_removed or record is not last[record.key()]


def test_a_standby_leaves_only_the_rest_to_read() -> None:
    """Q4: it has stored what it has read."""

    async def scenario(site: Site) -> None:
        for _ in range(5):
            site.commits(0, ONE)
        site.standbys.follow(0)
        await asyncio.sleep(SOON_S)
        assert site.standbys.warm() == [0]
        for _ in range(5):
            site.commits(0, ONE)
            await asyncio.sleep(0.2)
        await asyncio.sleep(SOON_S)
        site.commits(0, ONE)
        values = await site.standbys.release(0)
        assert values is not None
        file, end = site.files[0].spool, len(site.broker.partitions[TOPICS.spool, 0])
        left = len(site.broker.partitions[TOPICS.spool, 0][file.state().offset :])
        assert left <= 7, "the commit that has just come"
        found = await catch_up(site.bus, TOPICS.spool, {0: file}, int(site.clock() * 1000))
        assert found.read == left
        assert file.state().offset == end

    in_site(scenario)


def test_it_is_warm_only_near_the_end_and_not_for_long_without() -> None:
    """Q9: a shard moves to a standby only while that has little to read."""

    async def scenario(site: Site) -> None:
        assert not site.standbys.is_warm(0)
        site.standbys.follow(0)
        assert not site.standbys.is_warm(0), "nothing is known of it yet"
        assert site.standbys.behind(0) is None
        assert site.standbys.behind_s(0) is None
        await asyncio.sleep(SOON_S)
        assert site.standbys.is_warm(0), "also of a shard that has nothing"
        assert not site.standbys.is_warm(1)
        held = site.files[0].held = site.loop.create_future()
        for n in range(standby.NEAR + 1):
            site.append(TOPICS.spool, 0, row_key(n), None)
        await asyncio.sleep(0.5)
        assert site.standbys.is_warm(0), "for a moment"
        await asyncio.sleep(1.0)
        assert (site.standbys.behind(0) or 0) > standby.NEAR
        assert 1.0 <= (site.standbys.behind_s(0) or 0) <= 1.5
        assert not site.standbys.is_warm(0)
        held.set_result(None)
        await asyncio.sleep(SOON_S)
        assert site.standbys.is_warm(0)
        assert site.standbys.behind_s(0) == 0
        await site.standbys.release(0)
        assert site.standbys.behind_s(0) is None
        assert not site.standbys.is_warm(0)

    in_site(scenario)


@pytest.mark.parametrize("damage", ["too old", "ahead"])
def test_a_file_that_cannot_be_trusted_is_made_again(damage: str) -> None:
    async def scenario(site: Site) -> None:
        site.commits(0, ONE)
        site.commits(0, ONE)
        file = site.files[0].spool
        at_ms, offset = int(site.clock() * 1000), len(site.broker.partitions[TOPICS.spool, 0])
        if damage == "too old":
            await catch_up(site.bus, TOPICS.spool, {0: file}, at_ms)
            file.commit(Writer(file, [])._batch(Commit([["u"]])), Marker(99, 99, {}), offset, at_ms - DAY_MS)
        else:
            file.commit(Writer(file, [])._batch(Commit([["u"]])), Marker(99, 99, {}), offset + 5, at_ms)
        site.standbys.follow(0)
        await asyncio.sleep(SOON_S)
        assert site.standbys.is_warm(0)
        await site.standbys.release(0)
        assert observed(site.files[0].spool)["rows"] == observed(await site.from_zero(0))["rows"]
        assert file.state().offset == len(site.broker.partitions[TOPICS.spool, 0])

    in_site(scenario)


def test_records_that_are_not_valid_are_told_and_left_out() -> None:
    async def scenario(site: Site) -> None:
        site.standbys.follow(0)
        site.commits(0, ONE)
        end = len(site.broker.partitions[TOPICS.spool, 0])
        site.append(TOPICS.spool, 0, b"m/1", b"\xff")
        site.append(TOPICS.spool, 0, b"?", b"")
        site.append(TOPICS.sessions, 0, b"", b"\xff")
        await asyncio.sleep(SOON_S)
        assert [offset for offset, _ in site.malformed] == [end, end + 1]
        assert site.standbys.is_warm(0)

    in_site(scenario)


def test_a_disk_that_is_full_makes_it_cold_until_it_is_not() -> None:
    async def scenario(site: Site) -> None:
        site.standbys.follow(0)
        await asyncio.sleep(SOON_S)
        site.files[0].fails = 1
        site.commits(0, ONE)
        await asyncio.sleep(SOON_S)
        assert not site.standbys.is_warm(0)
        await asyncio.sleep(5 + SOON_S)
        assert site.standbys.is_warm(0)
        assert observed(await site.taken_over(0)) == observed(await site.from_zero(0))

    in_site(scenario)


def test_the_last_session_records_are_kept_and_what_comes_later_is_read_on() -> None:
    async def scenario(site: Site) -> None:
        site.standbys.follow(1)
        for n, value in ((1, b"a"), (2, b"b"), (1, b"c"), (2, None), (3, b"d")):
            site.append(TOPICS.sessions, 1, b"%d" % n, value)
        await asyncio.sleep(SOON_S)
        values = await site.standbys.release(1)
        assert values is not None
        assert [(record.key(), record.value()) for record in values.records()] == [(b"1", b"c"), (b"3", b"d")]
        site.append(TOPICS.sessions, 1, b"3", None)
        assert values.position == 5
        await site.bus.read(TOPICS.sessions, {1: values.position}, values.take)
        assert [record.key() for record in values.records()] == [b"1"]

    in_site(scenario)


def test_session_records_beyond_the_limit_are_not_kept() -> None:
    """Those of the largest shard go; its file stays warm."""

    async def scenario(site: Site) -> None:
        for shard in range(SHARDS):
            site.standbys.follow(shard)
        for n in range(20):
            site.append(TOPICS.sessions, 0, b"%d" % n, b"x" * 10)
        site.append(TOPICS.sessions, 1, b"1", b"x" * 10)
        await asyncio.sleep(SOON_S)
        site.append(TOPICS.sessions, 0, b"1", b"more")
        site.commits(0, ONE)
        await asyncio.sleep(SOON_S)
        assert site.standbys.warm() == [0, 1]
        assert await site.standbys.release(0) is None
        assert await site.standbys.release(1) is not None

    in_site(scenario, sessions_bytes=3_000)


KEYS = st.sampled_from([b"a", b"b", b"c"])


@given(st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=5)), max_size=20))
def test_the_size_is_that_of_what_is_there(written: list[tuple[bytes, bytes | None]]) -> None:
    values, fresh, expected = (
        SessionValues(FencedPartition(0)),
        SessionValues(FencedPartition(0)),
        dict[bytes, MemoryRecord](),
    )
    for offset, (key, value) in enumerate(written):
        record = MemoryRecord(("sessions", 0), key, value, None)
        record.stored_at(offset, 0)
        values.take(record)
        expected.pop(key, None) if value is None else expected.update({key: record})
    for record in expected.values():
        fresh.take(record)
    assert (values.size, len(values), values.position) == (fresh.size, len(expected), len(written))
    assert list(values.records()) == list(expected.values())


def test_many_records_are_few_transactions() -> None:
    """The cost of a standby is the number of its transactions."""

    async def scenario(site: Site) -> None:
        site.standbys.follow(0)
        await asyncio.sleep(SOON_S)
        before = site.files[0].calls
        for _ in range(100):
            site.commits(0, ONE)
            await asyncio.sleep(0.01)
        await asyncio.sleep(SOON_S)
        assert site.files[0].calls - before <= 4
        assert site.standbys.behind(0) == 0

    in_site(scenario)
