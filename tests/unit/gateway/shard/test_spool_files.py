"""A damaged file of a spool keeps no shard from its start: it is a view of a topic (Q7)."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.errors import SpoolDamaged, SpoolError
from gateway.shard.spool import Spool, _is_damage
from gateway.shard.spool_files import SpoolFiles
from tests.unit.gateway.shard.test_spool import batch, commit, rows


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def overwritten(path: Path) -> None:
    path.write_bytes(b"no database at all " * 1_000)


def with_a_wrong_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 : 2 * 4096] = b"\xff" * 4096
    path.write_bytes(data)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 4096 + 100])


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").write_bytes(b"x")


def of_another_program(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()


@pytest.mark.parametrize("damage", [overwritten, with_a_wrong_page, truncated, a_directory, of_another_program])
def test_a_damaged_file_is_set_aside_again_and_again(
    tmp_path: Path, executor: Executor, damage: Callable[[Path], None]
) -> None:
    counts = Counter[str]()
    files, path = SpoolFiles(tmp_path, executor, counts), tmp_path / "3.sqlite"
    for times in range(1, 4):
        file = files.open(3)
        commit(file.spool, batch(*range(1, 200)), last=200, offset=9)
        assert rows(file.spool)
        file.close()
        damage(path)
        file = files.open(3)
        assert not rows(file.spool)
        assert file.spool.state().offset == 0, "it reads the topic from its beginning"
        file.close()
        assert counts["spools_set_aside"] == times
        assert {found.name.removesuffix("-wal").removesuffix("-shm") for found in tmp_path.iterdir()} == {
            "3.sqlite",
            "3.sqlite.damaged",
        }


def test_a_file_that_another_process_has_is_left_to_it(tmp_path: Path, executor: Executor) -> None:
    counts = Counter[str]()
    files = SpoolFiles(tmp_path, executor, counts)
    other = files.open(3)
    with pytest.raises(SpoolError, match="locked") as raised:
        files.open(3)
    assert not isinstance(raised.value, SpoolDamaged)
    commit(other.spool, batch(1), last=1, offset=9)
    other.close()
    assert not counts
    assert [path.name for path in tmp_path.iterdir()] == ["3.sqlite"]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY])
def test_another_file_would_not_help_if_the_disk_is_to_blame(tmp_path: Path, code: int) -> None:
    error = sqlite3.OperationalError("not this file")
    error.sqlite_errorcode = code
    assert not _is_damage(error, tmp_path / "3.sqlite")
    assert not _is_damage(PermissionError(), tmp_path / "3.sqlite")


def test_the_damage_is_told_from_other_causes(tmp_path: Path) -> None:
    path = tmp_path / "3.sqlite"
    path.write_bytes(b"no database at all " * 1_000)
    with pytest.raises(SpoolDamaged, match="cannot open the spool"):
        Spool(str(path), exclusive=True)
