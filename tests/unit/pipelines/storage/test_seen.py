"""Copies are told by the keys of what came before, across batches, crashes, and the loss of the file (R3, R4)."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.storage.local_database import measures_of
from pipelines.storage.seen import LEAST_FORGOTTEN, SeenKeys, keys_of
from tests.draw import examples

KEPT_S = 100
KEY = ("message_id", "number", "client")
Row = tuple[str, int | None, str | None]


def rows(*of: Row, at_ms: int = 0) -> pa.Table:
    ids, numbers, clients = zip(*of, strict=True) if of else ((), (), ())
    times = pa.array([at_ms * 1000] * len(of), pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "message_id": pa.array(ids, pa.string()),
            "number": pa.array(numbers, pa.int32()),
            "client": pa.array(clients, pa.string()),
            "message_appended": pa.array([0] * len(of), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "appended": times,
        }
    )


class SeenHarness:
    """A table, and what remembers its keys."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "states" / "outcomes.sqlite"
        self.table: list[pa.Table] = []
        self.read = 0
        self.seen = self.begun()

    def begun(self) -> SeenKeys:
        return SeenKeys(self.file, KEY, KEPT_S, self._told)

    def _told(self, columns: Sequence[str], kept_s: int) -> Iterable[pa.RecordBatch]:
        self.read += 1
        assert kept_s == KEPT_S
        return [batch for table in self.table for batch in table.select(list(columns)).to_batches()]

    def batch(self, number: int, *of: Row, query: str = "q", at_ms: int = 0, commits: bool = True) -> list[Row]:
        """The rows of a batch that are first ones; `commits`: whether the process lives until the table has them."""
        table = rows(*of, at_ms=at_ms)
        first = table.filter(self.seen.first(table, query, number))
        if commits:
            self.table.append(first)
        return list(zip(*(first[name].to_pylist() for name in KEY), strict=True))


@pytest.fixture
def harness(tmp_path: Path) -> SeenHarness:
    return SeenHarness(tmp_path)


A: Row = ("a", 0, "c")
B: Row = ("a", 1, None)
C: Row = ("b", None, None)


def test_the_first_of_each_key_is_kept_in_its_batch_and_after_it(harness: SeenHarness) -> None:
    assert harness.batch(0, A, B, A, B) == [A, B]
    assert harness.batch(1, B, C, A, C) == [C]
    assert harness.batch(2) == []
    assert harness.batch(3, A, B, C) == []


def test_nulls_and_texts_are_told_apart(harness: SeenHarness) -> None:
    alike: list[Row] = [("a", 0, None), ("a", 0, "None"), ("a", None, "0"), ("a, 0", None, None), ("", None, "")]
    assert harness.batch(0, *alike) == alike
    assert harness.batch(1, *reversed(alike)) == []


@pytest.mark.parametrize("again", ["same process", "another process"])
def test_a_batch_that_is_repeated_is_no_copy_of_itself(harness: SeenHarness, again: str) -> None:
    """Killed when its keys were remembered and the table had not its rows."""
    harness.batch(0, A)
    assert harness.batch(1, A, B, C, commits=False) == [B, C]
    if again == "another process":
        harness.seen = harness.begun()
    assert harness.batch(1, A, B, C) == [B, C]
    assert harness.batch(2, A, B, C) == []
    assert harness.read == 1, "only at the beginning"


@pytest.mark.parametrize("lost", ["removed", "damaged", "another query", "a batch behind"])
def test_without_its_file_it_knows_what_the_table_has(harness: SeenHarness, lost: str) -> None:
    harness.batch(0, A)
    harness.batch(1, B)
    number, query = 2, "q"
    if lost == "removed":
        for file in harness.file.parent.iterdir():
            file.unlink()
    elif lost == "damaged":
        harness.file.write_bytes(b"no database at all" * 1000)
    elif lost == "another query":
        number, query = 0, "p"
    else:  # power was lost, and with it what the file had last
        harness.table.append(rows(C))
        number = 3
    harness.seen = harness.begun()
    assert harness.batch(number, A, B, query=query) == []
    assert harness.batch(number + 1, C, query=query) == ([] if lost == "a batch behind" else [C])


def test_keys_are_forgotten_when_their_time_is_over_by_the_clock_of_what_comes(harness: SeenHarness) -> None:
    """No row is too late: one of which nothing is remembered is a first one."""
    harness.batch(0, A, at_ms=0)
    assert harness.batch(1, A, B, at_ms=KEPT_S * 1000) == [B]
    harness.batch(2, C, at_ms=KEPT_S * 1000 + 1)
    assert harness.batch(3, A, B, at_ms=0) == [A]


def test_a_clock_that_jumps_ahead_makes_no_batch_forget_everything(harness: SeenHarness) -> None:
    many: list[Row] = [(f"m{n}", 0, None) for n in range(2 * LEAST_FORGOTTEN)]
    harness.batch(0, *many)
    harness.batch(1, A, at_ms=10 * KEPT_S * 1000)
    assert len(harness.batch(2, *many, at_ms=0)) == LEAST_FORGOTTEN


def test_keys_of_one_time_stand_side_by_side() -> None:
    """The file is written where it was written last, whatever else is in it."""
    late, early = (keys_of(rows(A, B, C).set_column(3, "message_appended", _at(ms)), KEY) for ms in (2**33, 2**32))
    assert max(early) < min(late)


OF_FEED = ("feed", "sequence", "part")


def copies(*of: tuple[str, int, int]) -> pa.Table:
    feeds, sequences, parts = zip(*of, strict=True)
    return pa.table({"feed": feeds, "sequence": sequences, "part": parts, "appended": _at(0, len(of))})


def test_keys_with_a_number_are_told_apart_by_it_and_by_the_rest() -> None:
    """S5: also by the greatest number; what has one number stands side by side."""
    of = [(feed, number, part) for number in (0, 2**32, 2**63 - 1) for feed in ("a", "b", "a, 1") for part in (0, 1)]
    found = keys_of(copies(*of), OF_FEED)
    assert len(set(found)) == len(of)
    assert found == keys_of(copies(*reversed(of)), OF_FEED)[::-1]
    numbers = [number for _, number in sorted(zip(found, (number for _, number, _ in of), strict=True))]
    assert numbers == sorted(numbers)


def test_many_rows_of_a_batch_are_each_remembered_once(tmp_path: Path) -> None:
    """S5: more than are inserted at once, some of them known; and a file whose keys were made otherwise is rebuilt."""
    file, table = tmp_path / "seen.sqlite", list[pa.Table]()

    def told(columns: Sequence[str], _: int) -> Iterable[pa.RecordBatch]:
        known = [name for name in columns if name != "message_appended"]
        return [batch for rows in table for batch in rows.select(known).to_batches()]

    def first(number: int, sequences: Iterable[int]) -> list[int]:
        seen = SeenKeys(file, OF_FEED, KEPT_S, told)
        rows = copies(*(("a", sequence, 0) for sequence in sequences))
        new = rows.filter(seen.first(rows, "q", number))
        table.append(new)
        found: list[int] = new["sequence"].to_pylist()
        return found

    assert first(0, range(250)) == list(range(250))
    assert first(1, range(200, 1_050)) == list(range(250, 1_050))
    database = sqlite3.connect(file)
    assert database.execute("SELECT count(*) FROM seen").fetchone() == (1_050,)
    with database:
        database.execute("UPDATE seen SET key = randomblob(20)")
        database.execute("UPDATE batches SET layout = 2")
    database.close()
    assert first(2, range(1_000, 1_060)) == list(range(1_050, 1_060))


def _at(ms: int, count: int = 3) -> pa.Array:
    return pa.array([ms * 1000] * count, pa.int64()).cast(pa.timestamp("us", "UTC"))


row = st.tuples(st.sampled_from("ab"), st.sampled_from([None, 0, 1]), st.sampled_from([None, "", "c"]))


@settings(deadline=None, max_examples=examples(50))
@given(batches=st.lists(st.lists(row, max_size=8), max_size=6), killed=st.sets(st.integers(0, 5)))
def test_every_key_is_in_the_table_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]], killed: set[int]
) -> None:
    """In whatever batches they come, and whichever of these are repeated after a crash: each where it came first."""
    harness = SeenHarness(tmp_path_factory.mktemp("seen"))
    for number, batch in enumerate(batches):
        if number in killed:
            harness.batch(number, *batch, commits=False)
            harness.seen = harness.begun()
        harness.batch(number, *batch)
    kept = [row for table in harness.table for row in zip(*(table[name].to_pylist() for name in KEY), strict=True)]
    assert kept == list(dict.fromkeys(row for batch in batches for row in batch))


def test_what_is_remembered_is_told_to_whoever_looks(harness: SeenHarness) -> None:
    """Rows there are, and of the last batch rows that came, went, and were copies: of one that is at work, too."""
    assert measures_of(harness.file) is None
    harness.batch(0, A, B, A)
    first = measures_of(harness.file)
    assert first is not None
    assert first.pop("disk_bytes", 0) > 0
    assert first == {"rows": 2, "updated_rows": 2, "removed_rows": 0, "copies": 1}
    harness.batch(1, A, C, at_ms=KEPT_S * 1000 + 1)
    second = measures_of(harness.file)
    assert second is not None
    assert {**second, "disk_bytes": 0} == {
        "rows": 1,
        "updated_rows": 1,
        "removed_rows": 2,
        "copies": 1,
        "disk_bytes": 0,
    }
