"""Taking up the single spool file of earlier versions: all of it, once, without changing it (Q1, R4)."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from gateway.errors import SpoolError
from gateway.shard.earlier_spool import EarlierShard, read_earlier, retire
from gateway.shard.messages import Message
from gateway.shard.spool import Spool
from gateway.shard.spool_records import Marker, batch_of, records_of
from schemas.envelope import EVERYONE, Instruction

SCHEMA = """
CREATE TABLE messages (
    mid INTEGER PRIMARY KEY, shard INTEGER NOT NULL, expires INTEGER, message BLOB NOT NULL,
    instructions BLOB NOT NULL, payload_bytes INTEGER
);
CREATE TABLE queue (row INTEGER PRIMARY KEY, mid INTEGER NOT NULL, session TEXT NOT NULL, entry BLOB NOT NULL);
CREATE INDEX queue_by_session ON queue (session, row);
CREATE INDEX queue_by_message ON queue (mid);
CREATE INDEX messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL;
CREATE TABLE finished (
    mid INTEGER PRIMARY KEY, message BLOB NOT NULL, instructions BLOB NOT NULL, shard INTEGER NOT NULL
);
CREATE TABLE positions (name TEXT PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE keyed (id TEXT PRIMARY KEY, print BLOB NOT NULL, at_ms INTEGER NOT NULL);
"""

SIZE = len(b"a/bpayload\0")

encode = msgspec.msgpack.encode
POSITIONS = {"shard/0": b"zero", "shard/1": b"one", "instant": b"i", "inbound": b"p", "boot": b"b"}


def message(mid: int) -> Message:
    return Message(f"id-{mid}", "sender", "a/b", b"payload", 1, False, 9_000, b"\0", 0, mid, mid, "x", 4)


def instructions(mid: int) -> list[Instruction]:
    return [Instruction(0, mid, 0, 2, mid), Instruction(0, mid, 1, None, mid, EVERYONE)]


def fill(database: sqlite3.Connection) -> None:
    """Messages 1 and 2 of shard 0, 3 of shard 1; 4 and 5 are finished."""
    for mid, shard in ((1, 0), (2, 0), (3, 1)):
        row = (mid, shard, 9_000, encode(message(mid)), encode(instructions(mid)), 7)
        database.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", row)
    for row_number, mid, session in ((10, 1, "s"), (11, 1, "t"), (20, 2, "s"), (30, 3, "u")):
        delivery = encode((1, False, (7, 8), True))
        database.execute("INSERT INTO queue VALUES (?, ?, ?, ?)", (row_number, mid, session, delivery))
    for mid, shard in ((4, 1), (5, 0)):
        row = (mid, encode(message(mid)), encode(instructions(mid)), shard)
        database.execute("INSERT INTO finished VALUES (?, ?, ?, ?)", row)
    database.executemany("INSERT INTO positions VALUES (?, ?)", POSITIONS.items())
    database.execute("INSERT INTO keyed VALUES ('later', x'02', 9), ('first', x'01', 8)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that was closed in order."""
    path = tmp_path / "gateway 1?.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(SCHEMA)
        fill(database)
    return path


def read(path: Path, shards: int = 2) -> list[EarlierShard]:
    found = read_earlier(path, shards)
    assert found is not None
    return found


def contents(path: Path) -> dict[str, bytes]:
    """The files that hold data, not the index that SQLite makes for its readers."""
    found = {file.name: file.read_bytes() for file in path.parent.glob(f"{path.stem}*") if "-shm" not in file.name}
    return {name: content for name, content in found.items() if content}


def test_each_shard_gets_what_is_its_own(path: Path) -> None:
    zero, one = read(path)
    assert (zero.shard, one.shard) == (0, 1)
    assert zero.batch.messages == [(mid, message(mid), instructions(mid)) for mid in (1, 2, 5)]
    assert one.batch.messages == [(mid, message(mid), instructions(mid)) for mid in (3, 4)]
    assert [row[:3] for row in zero.batch.rows] == [(10, 1, "s"), (11, 1, "t"), (20, 2, "s")]
    assert one.batch.rows == [(30, 3, "u", 1, False, (7, 8), True)]
    assert zero.positions == {"shard": b"zero", "instant": b"i", "inbound": b"p", "boot": b"b"}
    assert one.positions == {"shard": b"one", "instant": b"i", "inbound": b"p", "boot": b"b"}
    for shard in (zero, one):
        assert shard.batch.keyed == {"first": (b"\1", 8), "later": (b"\2", 9)}
        assert (shard.last_row, shard.last_mid) == (30, 5)


def test_a_shard_goes_on_from_its_changelog(path: Path) -> None:
    """R4: what was finished is still to be relinquished."""
    zero, _ = read(path)
    marker = Marker(zero.last_row, zero.last_mid, zero.positions)
    spool = Spool(":memory:")
    spool.commit(*batch_of(records_of(zero.batch, marker)), 10, 5_000)
    assert spool.catch_up_end() == ([], 5, 30)
    assert spool.backlogs() == {"s": (2, 2 * SIZE), "t": (1, SIZE)}
    assert [(f.mid, f.instructions, f.numbers) for f in spool.finished()] == [(5, instructions(5), [5])]
    assert spool.positions() == zero.positions
    assert [keyed[0] for keyed in spool.keyed()] == ["first", "later"]


def test_reading_changes_nothing(path: Path) -> None:
    before = contents(path)
    first = read(path)
    assert read(path) == first
    assert contents(path) == before


def test_the_file_of_a_killed_gateway_has_its_last_commits(tmp_path: Path) -> None:
    """They are in its write-ahead log."""
    path = tmp_path / "killed.sqlite"
    with contextlib.closing(sqlite3.connect(tmp_path / "open.sqlite", isolation_level=None)) as database:
        database.execute("PRAGMA locking_mode=EXCLUSIVE")
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(SCHEMA)
        fill(database)
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"open.sqlite{suffix}", f"{path}{suffix}")
    before = contents(path)
    assert [len(shard.batch.rows) for shard in read(path)] == [3, 1]
    assert contents(path) == before
    retire(path)
    assert not [file for file in tmp_path.iterdir() if file.name in ("killed.sqlite", "killed.sqlite-wal")]
    assert [len(shard.batch.rows) for shard in read(tmp_path / "killed.sqlite.taken-up")] == [3, 1]


def test_a_file_without_payload_sizes_is_read(path: Path) -> None:
    """Still earlier versions did not have them."""
    expected = read(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE messages DROP COLUMN payload_bytes")
    assert read(path) == expected


def test_it_is_taken_up_once(path: Path) -> None:
    read(path)
    retire(path)
    assert read_earlier(path, 2) is None
    assert not path.exists()
    taken_up = path.with_name(path.name + ".taken-up")
    assert len(read(taken_up)[0].batch.rows) == 3
    retire(path)
    assert taken_up.exists()


def test_a_file_that_was_never_filled_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    path.touch()
    assert read(path) == [EarlierShard(0, 0, 0), EarlierShard(1, 0, 0)]
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA)
    assert read(path) == [EarlierShard(0, 0, 0), EarlierShard(1, 0, 0)]


def test_a_file_of_more_shards_is_refused(path: Path) -> None:
    with pytest.raises(SpoolError, match=r"holds shard 1, and there are 1 shards; start with"):
        read_earlier(path, 1)


def test_a_file_in_use_is_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        with pytest.MonkeyPatch.context() as patch:
            connect = sqlite3.connect
            patch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **(k | {"timeout": 0})))
            with pytest.raises(SpoolError, match=r"cannot open the spool .*locked"):
                read_earlier(path, 2)


@pytest.mark.parametrize("damage", ["pages", "no database", "a message", "a name"])
def test_a_damaged_file_is_refused(path: Path, damage: str) -> None:
    """One sentence that names the file and what to do."""
    if damage in ("a message", "a name"):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            if damage == "a message":
                database.execute("UPDATE messages SET message = substr(message, 1, 9) WHERE mid = 2")
            else:
                database.execute("INSERT INTO positions VALUES ('shard/x', x'00')")
    else:
        content = bytearray(path.read_bytes())
        start = 4096 if damage == "pages" else 0
        content[start : start + 4 * 4096] = b"\xff" * 4 * 4096
        path.write_bytes(content)
    with pytest.raises(SpoolError, match=r"cannot open the spool .*gateway 1\?\.sqlite: .*move the file away"):
        read_earlier(path, 2)


def test_a_file_that_cannot_be_renamed_is_one_clear_sentence(path: Path) -> None:
    path.with_name(path.name + ".taken-up").mkdir()
    with pytest.raises(SpoolError, match="cannot rename the spool"):
        retire(path)
