"""One SQLite file of a client or an agent: WAL, `synchronous=FULL`, one connection, one thread (M2).

A commit returns once the operating system has the WAL on disk (fsync). The connection holds the file's lock in
exclusive mode for as long as it is open: a second process gets StoreInUse, and there is no shared-memory file. Exactly
one connection uses the WAL, because SQLite before 3.51.3 may lose commits with two.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from edge.client.errors import DiskFull, StoreDamaged, StoreError, StoreFailed, StoreForeign, StoreInUse
from edge.durable import has_space, sync_directory

_WAL_BYTES_MAX: Final = 16 << 20  # what is kept of the WAL's file between checkpoints
_CACHE_KB: Final = 1_000  # of pages in memory; the system caches the file, too


class SqliteFile:
    """Opens `path`, or makes it, readable by its owner only. `application_id` marks the file as ours. `name` is what
    errors call it, `in_use` and `foreign` what they say if another process has it, or if it is not ours.

    Subclasses make their tables in `_make`. Raises StoreInUse, StoreForeign, StoreDamaged, StoreError (the directory is
    missing, no permission).
    """

    def __init__(self, path: Path, application_id: int, *, name: str, in_use: str, foreign: str) -> None:
        self._path, self._application_id = path, application_id
        self._name, self._in_use, self._foreign = f"{name} {path}", in_use, foreign
        self._create()
        try:
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"{self._name} cannot be opened: {error}") from error
        try:
            with self._translated():
                self._open()
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All that happens in it is durable when it has ended, or nothing of it. Raises StoreError."""
        try:
            self._db.execute(f"BEGIN {kind}")
            yield self._db
            self._db.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from error
            raise

    def close(self) -> None:
        """Releases the file."""
        self._db.close()

    def _make(self, *, is_new: bool) -> None:
        """Makes the tables that are missing, in the transaction that opens the file."""

    def _check_format(self, expected: int, another: str) -> None:
        """For subclasses that number their formats (`user_version`). Raises StoreForeign for another one; `another` is
        what to use then."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != expected:
            raise StoreForeign(
                f"{self._path} has format {version}, but this version of Waystation reads format {expected}: "
                f"use the version that wrote it, or another {another}"
            )

    def _create(self) -> None:
        """Makes the file and its directory entry durable."""
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileExistsError:
            return
        except OSError as error:
            raise StoreError(f"{self._name} cannot be made: {error.strerror}") from error
        os.close(descriptor)
        sync_directory(self._path.parent)

    def _open(self) -> None:
        execute = self._db.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        # Before anything is written: whose file is it?
        (application_id,) = execute("PRAGMA application_id").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application_id != self._application_id:
            raise StoreForeign(f"{self._path} is {self._foreign}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
        with self.transaction("EXCLUSIVE"):  # takes the lock, which is kept until the file is closed
            self._make(is_new=not tables)
            if not tables:
                execute(f"PRAGMA application_id = {self._application_id}")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as ours. A value of the wrong type is damage, too."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._failure(error) from error
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise StoreDamaged(f"{self._name} is damaged: {error}; move it away to start anew") from error

    def _failure(self, error: sqlite3.Error) -> StoreError:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreInUse(f"{self._name} is in use{self._in_use}")
        if code == sqlite3.SQLITE_NOTADB:
            return StoreForeign(f"{self._path} is {self._foreign}")
        # SQLite takes only ENOSPC for a full disk, and not a quota that is used up (EDQUOT).
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not has_space(self._path.parent)):
            return DiskFull(f"the disk is full: {self._name} cannot grow")
        if code == sqlite3.SQLITE_CORRUPT:
            return StoreDamaged(f"{self._name} is damaged ({error}); move it away to start anew")
        return StoreFailed(f"{self._name} cannot be read or written: {error}; check the disk")

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            self._db.close()  # what was not committed is not there when it is opened again


def create_tables(db: sqlite3.Connection, schema: str) -> None:
    """Runs the statements of a schema in the caller's transaction, which `executescript` would commit."""
    for statement in schema.split(";"):
        db.execute(statement)
