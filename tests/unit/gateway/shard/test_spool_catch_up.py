"""A file that reads the changelog holds in the end what its writer's file holds (Q1, R4): whatever the chunks, however
far the topic is compacted, wherever the reader or the writer dies."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shard.messages import Message
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker, batch_of, records_of
from schemas.envelope import EVERYONE, Instruction
from tests.draw import examples

SESSIONS = ("s", "t", "u")
Log = list[tuple[int, bytes, bytes | None]]
"""(offset, key, value): offsets have gaps after compaction."""


@dataclass
class Commit:
    """What to change; numbers choose among what is there."""

    messages: list[list[str]] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    further: list[int] = field(default_factory=list)
    keyed: dict[str, tuple[bytes, int] | None] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    forgets: bool = False
    done_at_once: bool = False


COMMITS = st.builds(
    Commit,
    st.lists(st.lists(st.sampled_from(SESSIONS), max_size=3, unique=True), max_size=3),
    st.lists(st.integers(0, 20), max_size=4),
    st.lists(st.integers(0, 20), max_size=2),
    st.dictionaries(st.sampled_from("kl"), st.none() | st.tuples(st.just(b"print"), st.integers(0, 9)), max_size=2),
    st.lists(st.integers(0, 2), max_size=2),
    st.lists(st.integers(0, 2), max_size=1),
    st.booleans(),
    st.booleans(),
)
UNFORGETTING = COMMITS.map(lambda commit: replace(commit, forgets=False))
"""While commits fail, none is reported that could be forgotten."""
PROPERTY = settings(max_examples=examples(60), deadline=None)


class Writer:
    """The owner of a shard: commits to its file, and then has the records in `log`."""

    def __init__(self, spool: Spool, log: Log, mid: int = 0, row: int = 0) -> None:
        self.spool, self.log = spool, log
        self.batches: list[tuple[SpoolBatch, Marker]] = []
        self._mid, self._row = mid, row
        self._commits = 0
        self._rows: list[int] = [delivery.row for session in SESSIONS for delivery in spool.load(session, 0, 1_000)]
        self._mids: list[int] = [*range(1, mid + 1)]
        self._parts = spool.finished_parts()

    @property
    def end(self) -> int:
        return self.log[-1][0] + 1 if self.log else 0

    def commit(self, commit: Commit) -> list[tuple[bytes, bytes | None]]:
        """Returns the records."""
        made = self._batch(commit)
        self._commits += 1
        marker = Marker(self._row, self._mid, {"shard": b"%d" % self._commits})
        records = records_of(made, marker)
        append(self.log, records)
        self.spool.commit(made, marker, self.end, self.end)
        self.batches.append((made, marker))
        return records

    def _batch(self, commit: Commit) -> SpoolBatch:
        made = SpoolBatch(keyed=commit.keyed)
        if commit.forgets:
            made.forgotten = [number for finished in self.spool.finished() for number in finished.numbers]
        for sessions in commit.messages:
            self._mid += 1
            self._mids.append(self._mid)
            made.messages.append((self._mid, message(self._mid), [Instruction(0, self._mid, 0, 2, self._mid)]))
            for session in sessions:
                self._row += 1
                made.rows.append((self._row, self._mid, session, 1, False, (), False))
        known = [*self._rows, *(row[0] for row in made.rows)] if commit.done_at_once else self._rows
        made.deleted_rows = [known[at % len(known)] for at in commit.deleted if known]
        self._rows = [row for row in [*self._rows, *(row[0] for row in made.rows)] if row not in made.deleted_rows]
        for at in commit.further:
            if self._mids:
                mid = self._mids[at % len(self._mids)]
                self._mid += 1
                made.instructions.append((self._mid, mid, message(mid), Instruction(0, mid, 1, 2, mid, EVERYONE)))
        for position in commit.finished:
            part = self._parts.get(position, 0)
            self._parts[position] = part + 1
            made.finished_clients[position, part] = [f"{self._commits} {position} {part}"]
        made.ended_positions = [(p, parts) for p in dict.fromkeys(commit.ended) if (parts := self._parts.pop(p, 0))]
        return made


def message(mid: int) -> Message:
    return Message(f"id-{mid}", "sender", "a/b", b"x" * mid, 1, False, mid, b"\0", 0, mid, mid)


def append(log: Log, records: list[tuple[bytes, bytes | None]]) -> None:
    end = log[-1][0] + 1 if log else 0
    log += [(end + n, key, value) for n, (key, value) in enumerate(records)]


def observed(spool: Spool) -> dict[str, object]:
    """All that a spool answers."""
    state = spool.state()
    return {
        "rows": {session: spool.load(session, 0, 1_000) for session in SESSIONS},
        "expired": sorted(spool.expired(5), key=lambda delivery: delivery.row),
        "backlogs": spool.backlogs(),
        "finished": spool.finished(),
        "keyed": spool.keyed(),
        "positions": spool.positions(),
        "finished clients": (spool.finished_clients(), spool.finished_parts()),
        "size": spool.size.rows,
        "marker": state.marker,
        "age": state.at_ms,
        "last numbers": spool.last_numbers(),
    }


def read(spool: Spool, log: Log, data: st.DataObject, most: int | None = None) -> None:
    """Reads on in chunks cut anywhere; `most` chunks, or to the end."""
    chunks = 0
    while chunks != most:
        left = [record for record in log if record[0] >= spool.state().offset]
        if not left:
            return
        commit_chunk(spool, left[: data.draw(st.integers(1, len(left)), "chunk")])
        chunks += 1


def commit_chunk(spool: Spool, chunk: Log) -> None:
    batch, marker = batch_of((key, value) for _, key, value in chunk)
    spool.commit(batch, marker, chunk[-1][0] + 1, chunk[-1][0] + 1)


def compacted(log: Log, data: st.DataObject, *, drops_tombstones: bool) -> Log:
    """As Kafka does it: up to some offset, only the last record of each key; perhaps no tombstones there."""
    end = data.draw(st.integers(0, len(log)), "compacted up to")
    last = {key: offset for offset, key, _ in log[:end]}
    kept = [record for record in log[:end] if last[record[1]] == record[0]]
    if drops_tombstones:
        kept = [record for record in kept if record[2] is not None or data.draw(st.booleans(), "keeps tombstone")]
    return kept + log[end:]


def written(commits: list[Commit]) -> Writer:
    writer = Writer(Spool(":memory:"), [])
    for commit in commits:
        writer.commit(commit)
    return writer


@PROPERTY
@given(st.lists(COMMITS, min_size=1, max_size=8), st.booleans(), st.data())
def test_a_fresh_file_reads_all(commits: list[Commit], is_compacted: bool, data: st.DataObject) -> None:
    writer = written(commits)
    log = compacted(writer.log, data, drops_tombstones=True) if is_compacted else writer.log
    fresh = Spool(":memory:")
    read(fresh, log, data)
    leftovers = fresh.catch_up_end()
    assert leftovers == ([], *writer.spool.last_numbers())
    assert observed(fresh) == observed(writer.spool)
    assert fresh.state().offset == writer.end


@PROPERTY
@given(st.lists(COMMITS, min_size=1, max_size=8), st.data())
def test_a_file_whose_reader_dies_reads_some_again(commits: list[Commit], data: st.DataObject) -> None:
    """The topic is compacted meanwhile; tombstones stay, for the file is not too old. It may have lost its last
    transactions, so it reads what it has read."""
    writer = written(commits)
    log = writer.log
    with TemporaryDirectory() as directory:
        path = str(Path(directory) / "spool.sqlite")
        for _ in range(data.draw(st.integers(1, 3), "lives")):
            spool = Spool(path)
            read(spool, log, data, data.draw(st.integers(0, 2), "chunks"))
            start = data.draw(st.integers(0, spool.state().offset), "from")
            again = [record for record in log if record[0] >= start]
            if again:
                commit_chunk(spool, again[: data.draw(st.integers(1, len(again)), "again")])
            spool.close()
            log = compacted(log, data, drops_tombstones=False)
        spool = Spool(path)
        read(spool, log, data)
        spool.catch_up_end()
        assert observed(spool) == observed(writer.spool)
        assert observed(spool)["size"] == sum(count for count, _ in spool.backlogs().values())
        spool.close()


@PROPERTY
@given(st.lists(COMMITS, max_size=4), COMMITS, COMMITS, st.data())
def test_a_writer_that_dies_in_a_commit_has_committed_its_facts_only(
    commits: list[Commit], lost: Commit, next_one: Commit, data: st.DataObject
) -> None:
    """Its successors write tombstones for the rest, and may die too; the next marker does not commit it."""
    writer = written(commits)
    expected, before = written(commits).spool, len(writer.log)
    records = writer.commit(lost)
    tail = records[: data.draw(st.integers(0, len(records) - 1), "cut")]
    log = writer.log[: before + len(tail)]
    found, _ = batch_of(tail)
    facts = SpoolBatch(
        deleted_rows=found.deleted_rows, forgotten=found.forgotten, keyed=found.keyed,
        finished_clients=found.finished_clients,
    )  # fmt: skip
    expected.commit(facts, None, 0, 0)
    uncommitted = {b"m/%d" % number for number, *_ in (*found.messages, *found.instructions)}
    uncommitted |= {b"r/%d" % row for row, *_ in found.rows}
    with TemporaryDirectory() as directory:
        spool, kept = Spool(":memory:"), Spool(str(Path(directory) / "spool.sqlite"))
        read(spool, log, data)
        leftovers = spool.catch_up_end()
        assert {*leftovers.keys} == uncommitted
        of_the_log = ("last numbers", "age")
        assert differing(spool, expected, *of_the_log) == []
        assert spool.state().at_ms == (log[-1][0] + 1 if log else 0)
        written_keys = leftovers.keys[: data.draw(st.integers(0, len(leftovers.keys)), "tombstones of a successor")]
        read(kept, log, data)
        kept.catch_up_end()
        append(log, [(key, None) for key in written_keys])
        kept.close()
        successor = Spool(str(Path(directory) / "spool.sqlite"))
        read(successor, log, data)
        keys, mid, row = successor.catch_up_end()
        assert uncommitted - {*written_keys} <= {*keys} <= uncommitted
        assert (mid, row) == leftovers[1:]
        assert differing(successor, expected, *of_the_log) == []
        append(log, [(key, None) for key in keys])
        second = Writer(successor, log, mid, row)
        second.commit(next_one)
        assert successor.catch_up_end().keys == []
        fresh = Spool(":memory:")
        read(fresh, compacted(log, data, drops_tombstones=True), data)
        assert fresh.catch_up_end().keys == []
        assert differing(fresh, successor) == []
        successor.close()


def differing(one: Spool, other: Spool, *but: str) -> list[tuple[object, object]]:
    """Answers of two spools that differ, without these."""
    first, second = observed(one), observed(other)
    return [(first[name], second[name]) for name in first if first[name] != second[name] and name not in but]


def attempt(log: Log, batch: SpoolBatch, marker: Marker, data: st.DataObject) -> None:
    """A commit that fails before its marker is stored."""
    records = records_of(batch, marker)
    append(log, records[: data.draw(st.integers(0, len(records) - 1), "stored")])


@PROPERTY
@given(st.lists(COMMITS, max_size=3), st.lists(COMMITS, min_size=2, max_size=4), st.data())
def test_commits_that_failed_go_into_the_next_one(
    commits: list[Commit], failed: list[Commit], data: st.DataObject
) -> None:
    """R4: the file is as after one commit at a time; also with records of each attempt in the changelog."""
    writer = written([*commits, *failed])
    batches = writer.batches[len(commits) :]
    log = written(commits).log
    together, merged = written(commits).spool, SpoolBatch()
    for batch, marker in batches:
        merged = merged.then(batch)
        attempt(log, merged, marker, data)
    marker = batches[-1][1]
    append(log, records_of(merged, marker))
    together.commit(merged, marker, 0, writer.end)
    assert differing(together, writer.spool) == []
    fresh = Spool(":memory:")
    read(fresh, log, data)
    assert fresh.catch_up_end().keys == []
    fresh.commit(SpoolBatch(), marker, 0, writer.end)
    assert differing(fresh, writer.spool) == []


@PROPERTY
@given(st.lists(COMMITS, max_size=3), st.lists(UNFORGETTING, min_size=1, max_size=4), st.data())
def test_what_is_done_while_commits_fail_is_taken_out(
    commits: list[Commit], failed: list[Commit], data: st.DataObject
) -> None:
    """R4: all instructions are relinquished once, by the caller or by a later commit; nothing that an attempt has left
    in the changelog is delivered."""
    writer = written([*commits, *failed])
    batches = writer.batches[len(commits) :]
    log = written(commits).log
    merged, relinquished = SpoolBatch(), list[Instruction]()
    for batch, marker in batches:
        merged = merged.then(batch)
        attempt(log, merged, marker, data)
        done, _ = merged.take_done()
        for _, instructions, numbers in done:
            relinquished += instructions
            merged.forgotten += numbers
    append(log, records_of(merged, batches[-1][1]))
    fresh = Spool(":memory:")
    read(fresh, log, data)
    assert fresh.catch_up_end().keys == []
    assert [fresh.load(session, 0, 1_000) for session in SESSIONS] == [
        writer.spool.load(session, 0, 1_000) for session in SESSIONS
    ]
    found = relinquished + [i for f in fresh.finished() for i in f.instructions]
    assert sorted(found, key=repr) == sorted((i for f in writer.spool.finished() for i in f.instructions), key=repr)
