"""The spool's contract: atomic commits, order, finished messages, nothing uncommitted after a crash (Q1, R4)."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gateway.errors import SpoolError
from gateway.shard.messages import Message
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker
from schemas.envelope import EVERYONE, Instruction

SIZE = len(b"a/bpayload\0")
OTHER = Instruction(0, 1, 1, 2, 1_001, EVERYONE)


def message(offset: int, expires: int | None = None) -> Message:
    return Message(f"id-{offset}", "sender", "a/b", b"payload", 1, False, expires, b"\0", 0, offset, 1_000 + offset)


def instruction(offset: int) -> Instruction:
    return Instruction(0, offset, 0, 1, 1_000 + offset)


def batch(*mids: int, sessions: tuple[str, ...] = ("s",), expires: int | None = None) -> SpoolBatch:
    """Messages with a row for each session; rows are numbered mid * 10 + n."""
    made = SpoolBatch()
    for mid in mids:
        made.messages.append((mid, message(mid, expires), [instruction(mid)]))
        made.rows += [(mid * 10 + n, mid, session, 1, False, (7,), True) for n, session in enumerate(sessions)]
    return made


def commit(spool: Spool, made: SpoolBatch, last: int = 0, offset: int = 0, **positions: bytes) -> None:
    """With a marker that commits messages up to `last`, if that is given, and their rows."""
    spool.commit(made, Marker(last * 10 + 9, last, positions) if last or positions else None, offset, 5_000)


def rows(spool: Spool, session: str = "s") -> list[int]:
    return [delivery.row for delivery in spool.load(session, 0, 1_000)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "new" / "spool.sqlite")


def test_rows_come_back_in_order_by_page(path: str) -> None:
    spool = Spool(path)
    commit(spool, batch(2, 1, 3, sessions=("s", "t")))
    spool.close()
    spool = Spool(path)
    first = spool.load("s", 0, 2)
    rest = spool.load("s", first[-1].row, 2)
    assert [delivery.row for delivery in (*first, *rest)] == [10, 20, 30]
    delivery = first[0]
    assert (delivery.message, delivery.instructions) == (message(1), [instruction(1)])
    assert (delivery.session, delivery.qos, delivery.retain) == ("s", 1, False)
    assert (delivery.subscription_ids, delivery.dup) == ((7,), True)
    assert spool.backlogs() == {"s": (3, 3 * SIZE), "t": (3, 3 * SIZE)}
    assert spool.last_numbers() == (3, 31)
    spool.close()


def test_a_message_is_finished_with_its_last_row_until_it_is_forgotten(path: str) -> None:
    """R4: in the commit that deletes the last row, not before; repeated after a crash until a commit forgets it."""
    spool = Spool(path)
    commit(spool, batch(1, 2, sessions=("s", "t")))
    commit(spool, SpoolBatch(deleted_rows=[10, 20]))
    assert spool.finished() == []
    commit(spool, SpoolBatch(deleted_rows=[11, 10, 99]))
    for _ in range(2):
        assert [(f.mid, f.message, f.instructions, f.numbers) for f in spool.finished()] == [
            (1, message(1), [instruction(1)], [1])
        ]
        spool.close()
        spool = Spool(path)
    commit(spool, SpoolBatch(forgotten=[1], deleted_rows=[21]))
    assert [f.mid for f in spool.finished()] == [2]
    commit(spool, SpoolBatch(forgotten=[2]))
    assert spool.finished() == []
    spool.close()


def test_a_row_may_come_and_go_in_one_commit(path: str) -> None:
    spool = Spool(path)
    made = batch(1)
    made.deleted_rows.append(10)
    commit(spool, made)
    assert [f.mid for f in spool.finished()] == [1]
    assert spool.load("s", 0, 10) == []
    spool.close()


def test_a_further_instruction_is_relinquished_with_the_message_or_at_once(path: str) -> None:
    """R4: an instruction of the other scope for a message in the spool; also if both happen in one commit."""
    spool = Spool(path)
    commit(spool, batch(1))
    commit(spool, SpoolBatch(instructions=[(5, 1, message(1), OTHER)]))
    assert spool.finished() == []
    assert [delivery.instructions for delivery in spool.load("s", 0, 1)] == [[instruction(1), OTHER]]
    assert spool.backlogs() == {"s": (1, SIZE)}
    commit(spool, SpoolBatch(instructions=[(6, 1, message(1), OTHER)], deleted_rows=[10]))
    assert [(f.instructions, f.numbers) for f in spool.finished()] == [([instruction(1), OTHER, OTHER], [1, 5, 6])]
    commit(spool, SpoolBatch(instructions=[(7, 1, message(1), OTHER)], forgotten=[1, 5, 6]))
    assert [(f.mid, f.message, f.instructions, f.numbers) for f in spool.finished()] == [(7, message(1), [OTHER], [7])]
    commit(spool, SpoolBatch(instructions=[(8, 1, message(1), OTHER)]))
    assert [(f.mid, f.numbers) for f in spool.finished()] == [(7, [7]), (8, [8])]
    commit(spool, SpoolBatch(forgotten=[7, 8]))
    assert spool.finished() == []
    spool.close()


def test_what_forgetting_a_message_leaves_out_stays_finished(path: str) -> None:
    """R4: an instruction that came while its message was being relinquished."""
    spool = Spool(path)
    commit(spool, batch(1))
    commit(spool, SpoolBatch(deleted_rows=[10]))
    [finished] = spool.finished()
    commit(spool, SpoolBatch(instructions=[(5, 1, message(1), OTHER)], forgotten=finished.numbers))
    assert [(f.mid, f.instructions, f.numbers) for f in spool.finished()] == [(5, [OTHER], [5])]
    spool.close()


def test_a_commit_is_whole_or_not_at_all(path: str) -> None:
    spool = Spool(path)
    commit(spool, SpoolBatch(), 1, 10, a=b"1", b=b"2")
    broken = batch(1, 2)
    broken.rows.append((21, 2, None, 1, False, (), False))  # type: ignore[arg-type]
    with pytest.raises(SpoolError, match="cannot be written"):
        commit(spool, broken, 2, 20, a=b"3")
    assert (spool.positions(), spool.backlogs()) == ({"a": b"1", "b": b"2"}, {})
    assert spool.state() == (Marker(19, 1, {"a": b"1", "b": b"2"}), 10, 5_000)
    assert spool.last_numbers() == (1, 19)
    commit(spool, SpoolBatch(), 1, 20, a=b"3")
    assert spool.positions() == {"a": b"3"}
    spool.close()


def test_the_marker_and_the_offset_are_there_after_a_restart(path: str) -> None:
    """Q1: the file reads on where it was; a chunk without marker moves only the offset and its time."""
    spool = Spool(path)
    assert spool.state() == (None, 0, 0)
    spool.commit(batch(1), Marker(10, 1, {"a": b"1"}, epoch=3), 12, 7_000)
    spool.commit(batch(2), None, 14, 8_000)
    spool.close()
    spool = Spool(path)
    assert spool.state() == (Marker(10, 1, {"a": b"1"}, epoch=3), 14, 8_000)
    spool.close()


def test_expired_rows_are_found(path: str) -> None:
    spool = Spool(path)
    commit(spool, batch(1, sessions=("s", "t"), expires=5_000))
    commit(spool, batch(2, expires=6_000))
    commit(spool, batch(3))
    commit(spool, SpoolBatch(instructions=[(5, 1, message(1, 5_000), OTHER)]))
    assert spool.expired(4_999) == []
    assert sorted(delivery.row for delivery in spool.expired(5_000)) == [10, 11]
    assert all(delivery.instructions == [instruction(1), OTHER] for delivery in spool.expired(5_000))
    spool.close()


def test_a_spool_that_cannot_be_read_says_so(path: str) -> None:
    spool = Spool(path)
    spool.close()
    reads = (spool.positions, spool.backlogs, spool.finished, spool.last_numbers, lambda: spool.load("s", 0, 1))
    for read in (*reads, spool.state, spool.finished_clients, spool.finished_parts, lambda: spool.expired(0)):
        with pytest.raises(SpoolError, match="cannot be read"):
            read()
    for write in (spool.wipe, spool.catch_up_end, lambda: commit(spool, batch(1))):
        with pytest.raises(SpoolError, match="cannot be written"):
            write()


def test_records_that_come_twice_change_nothing(path: str) -> None:
    """Q1: the file was behind the changelog by less than thought."""
    spool = Spool(path)
    commit(spool, batch(1, 2, sessions=("s", "t")), 2)
    commit(spool, SpoolBatch(deleted_rows=[10, 11, 20]), 2)
    for made in (batch(1, 2, sessions=("s", "t")), batch(2, sessions=("s",))):
        commit(spool, made, 2)
    assert spool.size.rows == 4
    commit(spool, SpoolBatch(deleted_rows=[10, 11, 20]), 2)
    assert (rows(spool, "s"), rows(spool, "t"), spool.size.rows) == ([], [21], 1)
    assert [f.mid for f in spool.finished()] == [1]
    spool.close()


def test_a_message_whose_rows_come_later_is_not_finished(path: str) -> None:
    """R4: a chunk of the changelog may end between a message and its rows."""
    spool = Spool(path)
    made = batch(1)
    commit(spool, SpoolBatch(messages=made.messages))
    assert [f.mid for f in spool.finished()] == [1]
    commit(spool, SpoolBatch(rows=made.rows), 1)
    assert spool.finished() == []
    assert rows(spool) == [10]
    spool.close()


def test_the_end_of_the_changelog_removes_what_nobody_has_committed(path: str) -> None:
    """Q1, R4: its keys are returned until tombstones are committed, also after a crash; facts stay."""
    spool = Spool(path)
    commit(spool, batch(1, 2, sessions=("s", "t")), 2)
    tail = batch(3, 4)
    tail.instructions = [(5, 1, message(1), OTHER)]
    tail.deleted_rows, tail.keyed, tail.finished_clients = [20, 21], {"k": (b"f", 1)}, {(7, 0): ["c"]}
    commit(spool, tail)
    keys = [b"r/30", b"r/40", b"m/3", b"m/4", b"m/5"]
    for _ in range(2):
        assert spool.catch_up_end() == (keys, 5, 40)
        assert (rows(spool, "s"), rows(spool, "t"), spool.size.rows) == ([10], [11], 2)
        assert spool.load("s", 0, 1)[0].instructions == [instruction(1)]
        assert [f.mid for f in spool.finished()] == [2]
        assert (spool.keyed(), spool.finished_clients()) == ([("k", b"f", 1)], {7: ["c"]})
        spool.close()
        spool = Spool(path)
    commit(spool, batch(6), 6)
    assert spool.catch_up_end() == ([], 6, 69)
    assert rows(spool) == [10, 60]
    spool.close()


def test_without_a_marker_nothing_is_committed(path: str) -> None:
    spool = Spool(path)
    commit(spool, batch(1))
    assert spool.catch_up_end() == ([b"r/10", b"m/1"], 1, 10)
    assert (spool.backlogs(), spool.finished(), spool.size.rows) == ({}, [], 0)
    assert spool.state().marker is None
    assert spool.positions() == {}
    spool.close()


def test_rows_without_message_are_removed_at_the_end_of_the_changelog(path: str) -> None:
    spool = Spool(path)
    commit(spool, SpoolBatch(rows=batch(1).rows), 2)
    assert rows(spool) == []
    assert spool.size.rows == 1
    assert spool.catch_up_end() == ([], 2, 29)
    assert spool.size.rows == 0
    spool.close()


def test_numbers_that_have_come_and_gone_are_not_given_again(path: str) -> None:
    """G8: session logs name rows by number."""
    spool = Spool(path)
    commit(spool, SpoolBatch(deleted_rows=[80], forgotten=[9]))
    commit(spool, batch(1), 1)
    spool.close()
    spool = Spool(path)
    assert spool.last_numbers() == (9, 80)
    assert spool.catch_up_end() == ([], 9, 80)
    spool.close()


def test_finished_clients_are_known_by_position_until_it_ends(path: str) -> None:
    """R4: a part holds only the new ones."""
    spool = Spool(path)
    commit(spool, SpoolBatch(finished_clients={(7, 0): ["a", "b"], (9, 0): ["c"]}))
    commit(spool, SpoolBatch(finished_clients={(7, 1): ["d"]}))
    spool.close()
    spool = Spool(path)
    assert spool.finished_clients() == {7: ["a", "b", "d"], 9: ["c"]}
    assert spool.finished_parts() == {7: 2, 9: 1}
    commit(spool, SpoolBatch(finished_clients={(7, 2): ["e"]}, ended_positions=[(7, 3), (8, 1)]))
    assert spool.finished_clients() == {9: ["c"]}
    assert spool.finished_parts() == {9: 1}
    spool.close()


def test_a_file_that_is_too_old_is_emptied(path: str) -> None:
    spool = Spool(path)
    made = batch(1, 2)
    made.keyed, made.finished_clients = {"k": (b"f", 1)}, {(7, 0): ["c"]}
    commit(spool, made, 1, 10, a=b"1")
    spool.catch_up_end()
    spool.wipe()
    for _ in range(2):
        assert spool.state() == (None, 0, 0)
        assert (spool.backlogs(), spool.finished(), spool.keyed(), spool.positions()) == ({}, [], [], {})
        assert (spool.finished_clients(), spool.size.rows, spool.last_numbers()) == ({}, 0, (0, 0))
        assert spool.catch_up_end() == ([], 0, 0)
        spool.close()
        spool = Spool(path)
    commit(spool, batch(1), 1)
    assert rows(spool) == [10]
    spool.close()


def test_a_file_of_another_version_is_emptied(path: str) -> None:
    """It is a view: the changelog has everything."""
    spool = Spool(path)
    commit(spool, batch(1), 1, 10)
    spool.close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE messages DROP COLUMN size")
        database.execute("PRAGMA user_version = 99")
    spool = Spool(path)
    assert spool.state() == (None, 0, 0)
    commit(spool, batch(2), 2)
    assert rows(spool) == [20]
    spool.close()


def test_the_file_of_an_earlier_version_is_not_emptied(tmp_path: Path) -> None:
    """Q1: it is no view. What it holds is nowhere else."""
    path = tmp_path / "spool.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE messages (mid INTEGER PRIMARY KEY)")
        database.execute("PRAGMA journal_mode=WAL")
    with pytest.raises(SpoolError, match=r"cannot open the spool .*not a view of a changelog"):
        Spool(str(path))


def test_a_file_that_is_no_spool_is_one_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(SpoolError, match=r"cannot open the spool .*spool\.sqlite"):
        Spool(str(path))


def test_its_size_is_known_without_counting(path: str) -> None:
    """Rows added, deleted, and added again; a commit that fails changes nothing; so after a restart."""
    spool = Spool(path)
    commit(spool, batch(1, 2, 3, sessions=("s", "t")))
    assert spool.size.rows == 6
    assert spool.size.file_bytes > 0
    commit(spool, SpoolBatch(deleted_rows=[10, 10, 99, 11, 20, 21]))
    assert spool.size.rows == 2
    broken = batch(4)
    broken.rows.append((41, 4, None, 1, False, (), False))  # type: ignore[arg-type]
    with pytest.raises(SpoolError):
        commit(spool, broken)
    assert spool.size.rows == 2
    made = batch(3, sessions=("s", "t", "u"))
    made.rows.append(made.rows[0])
    made.deleted_rows = [31]
    commit(spool, made)
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
