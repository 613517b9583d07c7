"""The views of redundant feeds over numbers that a lying source may send: up to 2^63-1 (S5)."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from feeds.message import NUMBER_MAX
from jobs.query.ledger_reader import LedgerReader
from tests.unit.jobs.ledger_tables import append

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
VIEWS = ("feed_messages", "feed_gaps", "feed_differences", "feed_health")


class FeedTables:
    """The tables of feeds with a few copies, a second apart. They are read after all was written."""

    def __init__(self, directory: Path) -> None:
        self._tables, self._place, self._at = str(directory / "tables"), 0, NOON
        self._reader: LedgerReader | None = None

    def bring(self, slot: str, stream: str, numbers: Iterable[int], passed: int | None = None) -> None:
        """A batch of a slot, with what its adapter says that it has passed."""
        fixed = {"feed": "radar", "stream": f"{stream}@0", "name": stream, "epoch": 0, "slot": slot, "partition": 0}
        rows: list[dict[str, Any]] = []
        for number in numbers:
            self._place, self._at = self._place + 1, self._at + timedelta(seconds=1)
            of_copy = {"sequence": number, "part": 0, "crc32": 1, "payload_bytes": 5, "adapter": slot}
            rows.append({**fixed, **of_copy, "offset": self._place, "appended": self._at})
        append(self._tables, "feed_copies", rows)
        counts = {"copies": len(rows), "duplicates": 0, "highest": max(numbers, default=None), "passed": passed}
        of_batch = {"offset": self._place, "appended": self._at, "adapter": slot}
        append(self._tables, "feed_progress", [{**fixed, **of_batch, **counts}])

    def settle(self) -> None:
        """Two minutes later both slots bring something else: what is missing now is not recent any more."""
        self._at += timedelta(minutes=2)
        for slot in ("active", "backup"):
            self.bring(slot, "later", (1,))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        if self._reader is None:
            self._reader = LedgerReader(self._tables)
        return self._reader.query(sql).rows

    def gaps(self, slot: str, stream: str) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT first_number, last_number, numbers FROM feed_gaps "
            f"WHERE slot = '{slot}' AND stream = '{stream}@0' ORDER BY 1"
        )


@pytest.fixture
def tables(tmp_path: Path) -> FeedTables:
    return FeedTables(tmp_path)


def check_all_can_be_read(tables: FeedTables) -> None:
    for view in VIEWS:
        tables.rows(f"SELECT * FROM {view}")


@pytest.mark.parametrize("numbers", [(0, 2**32 - 1, 2**32, 2**32 + 2), (5, NUMBER_MAX - 1, NUMBER_MAX), (NUMBER_MAX,)])
def test_great_numbers_are_counted(tables: FeedTables, numbers: Sequence[int]) -> None:
    """S5: what is between them is missing, and nothing else."""
    for slot in ("active", "backup"):
        tables.bring(slot, "a", numbers)
    check_all_can_be_read(tables)
    between = [(low + 1, high - 1, high - low - 1) for low, high in pairwise(numbers)]
    missing = [one for one in between if one[2]]
    for slot in ("active", "backup", "both"):
        assert tables.gaps(slot, "a") == missing


def test_a_sum_that_is_too_great_is_the_greatest_number(tables: FeedTables) -> None:
    """S5: sources that leap to the end of all numbers hide nothing of the other feeds, and end no query. Each slot of
    two streams lacks nearly all; a slot that has nothing of a stream lacks all 2^63 numbers; a slot passes all."""
    for slot in ("active", "backup"):
        for stream in ("a", "b"):
            tables.bring(slot, stream, (0, NUMBER_MAX))
    tables.bring("active", "c", (0, NUMBER_MAX))
    tables.bring("active", "d", (0,), passed=NUMBER_MAX)
    tables.settle()
    check_all_can_be_read(tables)
    assert tables.gaps("both", "a") == [(1, NUMBER_MAX - 1, NUMBER_MAX - 1)]
    assert tables.gaps("backup", "c") == [(0, NUMBER_MAX, NUMBER_MAX)]
    health = tables.rows("SELECT slot, copies, missing, behind, lost_in_both FROM feed_health ORDER BY 1")
    assert health == [("active", 8, NUMBER_MAX, 0, NUMBER_MAX), ("backup", 5, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX)]


def test_numbers_that_go_backwards_and_come_again(tables: FeedTables) -> None:
    """S5: a source that begins anew without an epoch; also with the greatest number, beyond the window."""
    tables.bring("active", "a", (7, 8, 9, 1, 2, 9, NUMBER_MAX))
    tables.bring("backup", "a", (7, NUMBER_MAX, NUMBER_MAX, 3, 1))
    tables.settle()
    check_all_can_be_read(tables)
    both = (10, NUMBER_MAX - 1, NUMBER_MAX - 10)
    assert tables.gaps("both", "a") == [(4, 6, 3), both]
    closed = tables.rows("SELECT slot, first_number, last_number FROM feed_gaps WHERE state = 'closed' ORDER BY ALL")
    assert ("active", 1, 2) in closed
    assert ("backup", 1, 1) in closed
