"""A SQLite file beside the driver of a query, for what it has to remember between batches.

The file can be lost: what is in it can be made anew from tables or topics. So one that is damaged is thrown away.
"""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

KEYS_A_QUERY = 10_000
"""SQLite takes 32,766 parameters."""


_BATCHES = """
CREATE TABLE IF NOT EXISTS batches (
    layout INTEGER NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, measures TEXT NOT NULL
);
"""


class Taken(NamedTuple):
    """The last batch that a database has, of which query, in which `layout` of its tables."""

    layout: int
    query: str
    batch: int


def file_of(directory: Path, query: str) -> Path:
    """The database of a query, by its name without generation."""
    return directory / f"{query}.sqlite"


def measures_of(file: Path) -> Mapping[str, int] | None:
    """Of the database of a query that may be at work: the `rows` it has, its `disk_bytes`, and of its last batch the
    rows `updated_rows` and `removed_rows`, and what it found to be `copies`. None if there is none to be read."""
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            (measures,) = database.execute("SELECT measures FROM batches").fetchone()
        finally:
            database.close()
        sizes = [path.stat().st_size for path in (file, Path(f"{file}-wal")) if path.exists()]
    except (sqlite3.Error, TypeError, OSError):
        return None
    return {**json.loads(measures), "disk_bytes": sum(sizes)}


class LocalDatabase:
    """The database `file`, opened when it is first asked for, with the tables that `layout` (SQL) makes, and one that
    says which batch it has.

    One thread at a time. Raises sqlite3.Error if the file cannot be opened or written.
    """

    def __init__(self, file: Path, layout: str) -> None:
        self._file = file
        self._layout = layout
        self._opened: sqlite3.Connection | None = None

    def __del__(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def taken(self) -> Taken | None:
        """The last batch it has; None if it has none."""
        row = self.connection.execute("SELECT layout, query, batch FROM batches").fetchone()
        return None if row is None else Taken(*row)

    @property
    def rows(self) -> int:
        """How many it had after that."""
        row = self.connection.execute("SELECT measures FROM batches").fetchone()
        return 0 if row is None else int(json.loads(row[0])["rows"])

    def forget(self) -> None:
        """Says that it has no batch; within the caller's transaction."""
        self.connection.execute("DELETE FROM batches")

    def take(self, taken: Taken, rows: int, updated: int, removed: int, copies: int = 0) -> None:
        """Says that it has a batch now; within the caller's transaction."""
        measures = {"rows": rows, "updated_rows": updated, "removed_rows": removed, "copies": copies}
        self.forget()
        self.connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", (*taken, json.dumps(measures)))

    @property
    def connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._opened = self._open()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # it is damaged, or no database
                for file in self._file.parent.glob(f"{self._file.name}*"):
                    file.unlink()
                self._opened = self._open()
        return self._opened

    def _open(self) -> sqlite3.Connection:
        # Spark calls from a thread of its own for each run of a query.
        database = sqlite3.connect(self._file, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            database.executescript(_BATCHES + self._layout)
        except sqlite3.Error:
            database.close()
            raise
        return database


def placeholders(count: int) -> str:
    """For so many parameters of an `IN (…)`."""
    return ", ".join("?" * count)
