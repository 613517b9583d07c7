"""The spool's contract: atomic commits, order, finished messages, nothing uncommitted after a crash (Q1, R4)."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gateway.errors import SpoolError
from gateway.shard.messages import Message
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch
from schemas.envelope import EVERYONE, Instruction


def message(offset: int, expires: int | None = None) -> Message:
    return Message(f"id-{offset}", "sender", "a/b", b"payload", 1, False, expires, b"\0", 0, offset, 1_000 + offset)


def instruction(offset: int) -> Instruction:
    return Instruction(0, offset, 0, 1, 1_000 + offset)


def batch(*mids: int, sessions: tuple[str, ...] = ("s",), expires: int | None = None) -> SpoolBatch:
    """Messages with a row for each session; rows are numbered mid * 10 + n."""
    made = SpoolBatch()
    for mid in mids:
        made.messages.append((mid, 3, message(mid, expires), [instruction(mid)]))
        made.rows += [(mid * 10 + n, mid, session, 1, False, (7,), True) for n, session in enumerate(sessions)]
    return made


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "new" / "spool.sqlite")


def test_rows_come_back_in_order_by_page(path: str) -> None:
    spool = Spool(path)
    spool.commit(batch(2, 1, 3, sessions=("s", "t")))
    spool.close()
    spool = Spool(path)
    first = spool.load("s", 0, 2)
    rest = spool.load("s", first[-1].row, 2)
    assert [entry.row for entry in (*first, *rest)] == [10, 20, 30]
    entry = first[0]
    assert (entry.message, entry.instructions) == (message(1), [instruction(1)])
    assert (entry.session, entry.shard, entry.qos, entry.retain) == ("s", 3, 1, False)
    assert (entry.subscription_ids, entry.dup) == ((7,), True)
    assert spool.backlogs() == {"s": (3, 3 * len(b"payload")), "t": (3, 3 * len(b"payload"))}
    assert spool.last_numbers() == (3, 31)
    spool.close()


def test_a_message_is_finished_with_its_last_row_until_it_is_forgotten(path: str) -> None:
    """R4: in the commit that deletes the last row, not before; repeated after a crash until a commit forgets it."""
    spool = Spool(path)
    spool.commit(batch(1, 2, sessions=("s", "t")))
    spool.commit(SpoolBatch(deleted_rows=[10, 20]))
    assert spool.finished() == []
    spool.commit(SpoolBatch(deleted_rows=[11, 10, 99]))
    for _ in range(2):
        assert [(f.mid, f.message, f.instructions, f.shard) for f in spool.finished()] == [
            (1, message(1), [instruction(1)], 3)
        ]
        spool.close()
        spool = Spool(path)
    assert spool.last_numbers() == (2, 21)
    spool.commit(SpoolBatch(forgotten=[1], deleted_sessions=["t"]))
    assert [f.mid for f in spool.finished()] == [2]
    spool.commit(SpoolBatch(forgotten=[2]))
    assert spool.finished() == []
    spool.close()


def test_a_row_may_come_and_go_in_one_commit(path: str) -> None:
    spool = Spool(path)
    made = batch(1)
    made.deleted_rows.append(10)
    spool.commit(made)
    assert [f.mid for f in spool.finished()] == [1]
    assert spool.load("s", 0, 10) == []
    spool.close()


def test_a_further_instruction_is_relinquished_with_the_message_or_at_once(path: str) -> None:
    """R4: an instruction of the other scope for a message in the spool; also if both happen in one commit."""
    other = Instruction(0, 1, 1, 2, 1_001, EVERYONE)
    spool = Spool(path)
    spool.commit(batch(1))
    spool.commit(SpoolBatch(instructions=[(1, 5, 3, message(1), other)]))
    assert spool.finished() == []
    spool.commit(SpoolBatch(instructions=[(1, 6, 3, message(1), other)], deleted_rows=[10]))
    assert [f.instructions for f in spool.finished()] == [[instruction(1), other, other]]
    spool.commit(SpoolBatch(instructions=[(1, 7, 3, message(1), other)], forgotten=[1]))
    assert [(f.mid, f.instructions) for f in spool.finished()] == [(7, [other])]
    spool.close()


def test_a_commit_is_whole_or_not_at_all(path: str) -> None:
    spool = Spool(path)
    spool.commit(SpoolBatch(positions={"a": b"1", "b": b"2"}))
    broken = batch(1, 2)
    broken.positions = {"a": b"3"}
    broken.rows.append(broken.rows[0])  # a row number twice
    with pytest.raises(SpoolError, match="cannot be written"):
        spool.commit(broken)
    assert (spool.positions(), spool.backlogs()) == ({"a": b"1", "b": b"2"}, {})
    spool.commit(SpoolBatch(positions={"a": b"3"}, dropped_positions=["b"]))
    assert spool.positions() == {"a": b"3"}
    spool.close()


def test_expired_rows_are_found(path: str) -> None:
    spool = Spool(path)
    spool.commit(batch(1, sessions=("s", "t"), expires=5_000))
    spool.commit(batch(2, expires=6_000))
    spool.commit(batch(3))
    assert spool.expired(4_999) == []
    assert sorted(entry.row for entry in spool.expired(5_000)) == [10, 11]
    spool.close()


def test_a_spool_that_cannot_be_read_says_so(path: str) -> None:
    spool = Spool(path)
    spool.close()
    reads = (spool.positions, spool.backlogs, spool.finished, spool.last_numbers, lambda: spool.load("s", 0, 1))
    for read in (*reads, lambda: spool.expired(0)):
        with pytest.raises(SpoolError, match="cannot be read"):
            read()


def test_a_spool_of_an_earlier_version_goes_on(path: str) -> None:
    """It did not know how large a payload is: its messages count with all they have."""
    spool = Spool(path)
    spool.commit(batch(1))
    spool.close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE messages DROP COLUMN payload_bytes")
    spool = Spool(path)
    spool.commit(batch(2, sessions=("t",)))
    rows, size = spool.backlogs()["s"]
    assert rows == 1
    assert size > len(b"payload")
    assert spool.backlogs()["t"] == (1, len(b"payload"))
    assert [entry.message for entry in spool.load("s", 0, 10)] == [message(1)]
    spool.close()


def test_a_file_that_is_no_spool_is_one_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(SpoolError, match=r"cannot open the spool .*spool\.sqlite"):
        Spool(str(path))


def test_its_size_is_known_without_counting(path: str) -> None:
    """Rows added, deleted one by one and by session; a commit that fails changes nothing; so after a restart."""
    spool = Spool(path)
    spool.commit(batch(1, 2, 3, sessions=("s", "t")))
    assert spool.size.rows == 6
    assert spool.size.file_bytes > 0
    spool.commit(SpoolBatch(deleted_rows=[10, 10, 99], deleted_sessions=["t"]))
    assert spool.size.rows == 2
    with pytest.raises(SpoolError):
        spool.commit(batch(2))
    assert spool.size.rows == 2
    spool.close()
    assert Spool(path).size.rows == 2
    assert Spool(":memory:").size == (0, 0)


def test_the_spool_of_a_gateway_has_one_connection(tmp_path: Path) -> None:
    """Not even to look: a second one could corrupt the file, and a second gateway would deliver everything twice."""
    path = tmp_path / "spool.sqlite"
    spool = Spool(str(path), exclusive=True)
    with contextlib.closing(sqlite3.connect(path, timeout=0)) as other:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("SELECT count(*) FROM sqlite_master")
        spool.close()
        assert other.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
