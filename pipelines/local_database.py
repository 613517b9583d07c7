"""A SQLite file beside the driver of a query, for what it has to remember between batches.

The file can be lost: what is in it can be made anew from tables or topics. So one that is damaged is thrown away.
"""

import sqlite3
from pathlib import Path

KEYS_A_QUERY = 10_000
"""SQLite takes 32,766 parameters."""


class LocalDatabase:
    """The database `file`, opened when it is first asked for, with the tables that `layout` (SQL) makes.

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
            database.executescript(self._layout)
        except sqlite3.Error:
            database.close()
            raise
        return database


def placeholders(count: int) -> str:
    """For so many parameters of an `IN (…)`."""
    return ", ".join("?" * count)
