"""A SQLite file beside the driver of a query, for what it has to remember between batches.

The file may be lost: its contents can be rebuilt from tables or topics. So a damaged file is deleted.

A file has one connection at a time: SQLite up to 3.51.2 may corrupt a file in WAL mode that has two (its WAL-reset
bug). An exclusive lock keeps other processes out; within this process the latest run of a query has the file.
"""

import json
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

KEYS_A_QUERY = 10_000
"""SQLite allows 32,766 parameters."""


_BATCHES = """
CREATE TABLE IF NOT EXISTS batches (
    layout INTEGER NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, measures TEXT NOT NULL
);
"""


class Taken(NamedTuple):
    """The last batch in a database, its query, and the `layout` of the database's tables."""

    layout: int
    query: str
    batch: int


def file_of(directory: Path, query: str) -> Path:
    """The database of a query, by the query's name without generation."""
    return directory / f"{query}.sqlite"


_OPENING = threading.RLock()
_OPEN: "WeakValueDictionary[Path, LocalDatabase]" = WeakValueDictionary()
"""The object in this process that has a connection, by absolute path; changed only while `_OPENING` is held."""


def measures_of(file: Path) -> Mapping[str, int] | None:
    """Measures of the database of a query of this process: its `rows` and `disk_bytes`, and for the last batch the
    numbers of `updated_rows`, `removed_rows` and `copies`. None if there is none to read. While the query has the file
    open, it is not opened a second time."""
    try:
        with _OPENING:
            owner = _OPEN.get(file.absolute())
            measures = _read_measures(file) if owner is None else owner.measures
        sizes = [path.stat().st_size for path in (file, Path(f"{file}-wal")) if path.exists()]
    except (sqlite3.Error, TypeError, OSError):
        return None
    return None if measures is None else {**measures, "disk_bytes": sum(sizes)}


def _read_measures(file: Path) -> Mapping[str, int]:
    database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        (measures,) = database.execute("SELECT measures FROM batches").fetchone()
    finally:
        database.close()
    return dict(json.loads(measures))


class LocalDatabase:
    """The database `file`, opened on first use, with the tables that `layout` (SQL) creates, and one that records which
    batch it has.

    For one thread at a time. Raises sqlite3.Error if the file cannot be opened or written, if another process has it,
    or if another object of this process has opened it since: then the query was restarted, and this run of it is over.
    """

    def __init__(self, file: Path, layout: str) -> None:
        self._file = file
        self._layout = layout
        self._opened: sqlite3.Connection | None = None
        self._superseded = False
        self.measures: Mapping[str, int] | None = None
        """What :func:`measures_of` returns for the last batch, without the size."""

    def __del__(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def taken(self) -> Taken | None:
        """The last batch in the database; None if there is none."""
        row = self.connection.execute("SELECT layout, query, batch FROM batches").fetchone()
        return None if row is None else Taken(*row)

    @property
    def rows(self) -> int:
        """The number of rows after that batch."""
        row = self.connection.execute("SELECT measures FROM batches").fetchone()
        return 0 if row is None else int(json.loads(row[0])["rows"])

    def forget(self) -> None:
        """Record that the database has no batch; within the caller's transaction."""
        self.connection.execute("DELETE FROM batches")

    def take(self, taken: Taken, rows: int, updated: int, removed: int, copies: int = 0) -> None:
        """Record that the database has this batch; within the caller's transaction."""
        measures = {"rows": rows, "updated_rows": updated, "removed_rows": removed, "copies": copies}
        self.forget()
        self.measures = measures
        self.connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", (*taken, json.dumps(measures)))

    @property
    def connection(self) -> sqlite3.Connection:
        if self._superseded:
            raise sqlite3.OperationalError(f"{self._file} belongs to a later run of the query")
        if self._opened is None:
            with _OPENING:
                self._take_over()
                self._opened = self._open_or_make_anew()
                _OPEN[self._file.absolute()] = self
        return self._opened

    def _take_over(self) -> None:
        """Close the connection of an earlier run of the query."""
        if (earlier := _OPEN.pop(self._file.absolute(), None)) is not None:
            earlier._superseded = True
            if earlier._opened is not None:
                earlier._opened.close()

    def _open_or_make_anew(self) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._open()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged, or not a database
            for file in self._file.parent.glob(f"{self._file.name}*"):
                file.unlink()
            return self._open()

    def _open(self) -> sqlite3.Connection:
        # Spark uses a separate thread for each run of a query.
        database = sqlite3.connect(self._file, check_same_thread=False)
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            database.executescript(_BATCHES + self._layout)
            row = database.execute("SELECT measures FROM batches").fetchone()
            self.measures = None if row is None else json.loads(row[0])
        except sqlite3.Error:
            database.close()
            raise
        return database


def placeholders(count: int) -> str:
    """The parameters of an `IN (…)` with this many values."""
    return ", ".join("?" * count)
