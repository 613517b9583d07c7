"""The outbox's file: whose it is, what is wrong with it, and who else has it (M2)."""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.client.errors import DiskFull, StoreDamaged, StoreError, StoreFailed, StoreForeign, StoreInUse
from edge.client.sqlite_store import SqliteStore
from edge.client.store import Batch, StoredMessage
from tests.unit.edge.full_disk import full_disk

CLIENT = "van-7"


def message(sequence: int, payload: bytes = b"x") -> StoredMessage:
    return StoredMessage(sequence, "t", payload, 1, False, None, 1e9, len(payload) + 1)


def written(path: Path, messages: int = 200) -> Path:
    """A closed store with messages."""
    file = path / "outbox"
    store = SqliteStore(file, CLIENT)
    store.commit(Batch(added={n: message(n, b"%d" % n * 100) for n in range(1, messages + 1)}))
    store.close()
    return file


def test_a_second_one_is_refused_while_the_first_is_open(tmp_path: Path) -> None:
    file = written(tmp_path)
    first = SqliteStore(file, CLIENT)
    with pytest.raises(StoreInUse, match="another process"):
        SqliteStore(file, CLIENT)
    first.commit(Batch(removed=[1]))
    first.close()
    second = SqliteStore(file, CLIENT)
    assert second.recover().messages == 199
    second.close()


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_it_is_synced_at_each_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "outbox", CLIENT)
    pragmas = {name: store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert pragmas == {"journal_mode": "wal", "synchronous": 2}
    store.close()


def text(file: Path) -> None:
    file.write_text("name,position\nvan-7,here\n" * 100)


def other_database(file: Path) -> None:
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE contacts (name TEXT)")
    db.close()


def newer(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


@pytest.mark.parametrize("replace", [text, other_database, newer])
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    file = written(tmp_path)
    replace(file)
    before = file.read_bytes()
    with pytest.raises(StoreForeign, match=r"outbox"):
        SqliteStore(file, CLIENT)
    assert file.read_bytes() == before


def test_the_file_of_another_client(tmp_path: Path) -> None:
    with pytest.raises(StoreForeign, match=r"van-7.*van-8"):
        SqliteStore(written(tmp_path), "van-8")


def test_where_no_file_can_be(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be made"):
        SqliteStore(tmp_path / "missing" / "outbox", CLIENT)
    with pytest.raises(StoreError):
        SqliteStore(tmp_path, CLIENT)


def test_a_truncated_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_bytes(file.read_bytes()[:20_000])
    with pytest.raises(StoreDamaged, match="damaged"):
        read_all(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(position=st.floats(0, 1, exclude_max=True), junk=st.binary(min_size=1, max_size=300))
def test_any_damage_is_reported_as_such_or_does_not_matter(tmp_path: Path, position: float, junk: bytes) -> None:
    """Never another exception."""
    file = tmp_path / "outbox"
    file.unlink(missing_ok=True)
    content = bytearray(written(tmp_path, 60).read_bytes())
    at = int(position * len(content))
    content[at : at + len(junk)] = junk
    file.write_bytes(content)
    try:
        read_all(file)
    except StoreError:
        pass
    finally:
        file.with_name("outbox-wal").unlink(missing_ok=True)


def read_all(file: Path) -> None:
    store = SqliteStore(file, CLIENT)
    try:
        store.recover()
        store.waiting(0, 1_000, 1 << 30)
        store.expired(1e12)
        store.next_expiry()
    finally:
        store.close()


@pytest.mark.parametrize(
    ("problem", "error"),
    [(errno.EDQUOT, DiskFull), (errno.ENOSPC, DiskFull), (errno.EIO, StoreFailed), (0, StoreFailed)],
)
def test_a_quota_that_is_used_up_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: int, error: type[Exception]
) -> None:
    """SQLite says of it only that a write has failed (EDQUOT is SQLITE_IOERR_WRITE). A disk that is broken is none."""

    def write(descriptor: int, data: bytes) -> int:
        raise OSError(problem, os.strerror(problem))

    store = SqliteStore(tmp_path / "outbox", CLIENT)
    with monkeypatch.context() as patch, full_disk(store, sqlite3.SQLITE_IOERR_WRITE):
        if problem:
            patch.setattr(os, "write", write)
        with pytest.raises(error):
            store.commit(Batch(added={1: message(1)}))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["outbox", "outbox-wal"]
    store.commit(Batch(added={1: message(1)}))
    assert store.recover().messages == 1
    store.close()


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The batch is not there, not even in part; the store goes on when there is space."""
    store = SqliteStore(tmp_path / "outbox", CLIENT)
    store.commit(Batch(added={1: message(1)}))
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(DiskFull):
        store.commit(Batch(added={2: message(2), 3: message(3, b"x" * 100_000)}))
    assert store.recover().messages == 1
    store._db.execute(f"PRAGMA max_page_count = {pages + 1_000}")
    store.commit(Batch(added={2: message(2), 3: message(3, b"x" * 100_000)}))
    assert store.recover().messages == 3
    store.close()
