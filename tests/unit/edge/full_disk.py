"""A SQLite file on a full disk: reads succeed, and all else fails, also what removes rows: the WAL grows by it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from edge.client.sqlite_file import SqliteFile

_NEEDS_SPACE: Final = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class _Full:
    def __init__(self, db: sqlite3.Connection, code: int) -> None:
        self._db, self._code = db, code
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *arguments: Any) -> Any:
        self._check(sql)
        return self._db.execute(sql, *arguments)

    def executemany(self, sql: str, *arguments: Any) -> Any:
        self._check(sql)
        return self._db.executemany(sql, *arguments)

    def _check(self, sql: str) -> None:
        if sql.split(maxsplit=1)[0].upper() in _NEEDS_SPACE:
            self.failures += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = self._code
            raise error


@contextmanager
def full_disk(file: SqliteFile, code: int = sqlite3.SQLITE_FULL) -> Iterator[_Full]:
    """`failures` counts what there was no space for; `code` is what SQLite says."""
    db = file._db
    full = _Full(db, code)
    file._db = full  # type: ignore[assignment]
    try:
        yield full
    finally:
        file._db = db
