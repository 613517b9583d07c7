"""A SQLite file of the agent: WAL, `synchronous=FULL`, one connection, exclusive (M2).

See :mod:`edge.client.sqlite_store` for why there is one connection only. Used from one thread.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.agent.way import WayLog
from edge.client.errors import DiskFull, StoreDamaged, StoreError, StoreFailed, StoreForeign, StoreInUse


class Database:
    """Opens the file, or makes it, readable by its owner only. `schema`: statements that make missing tables.

    Raises StoreInUse, StoreForeign, StoreDamaged, StoreError.
    """

    def __init__(self, path: Path, application_id: int, schema: str, log: WayLog) -> None:
        self._path = path
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"the file {path} cannot be opened: {error}") from error
        try:
            self._prepare(application_id, schema, log)
        except sqlite3.Error as error:
            self._db.close()
            raise self._failure(error) from error
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that happens in it is durable when it has ended, or nothing of it. Raises StoreError."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from error
            raise

    def close(self) -> None:
        """Releases the file."""
        self._db.close()

    def _prepare(self, application_id: int, schema: str, log: WayLog) -> None:
        execute = self._db.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        (found,) = execute("PRAGMA application_id").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and found != application_id:
            raise StoreForeign(f"{self._path} is another program's file: use another directory for the agent")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        with self.transaction():
            for statement in schema.split(";"):
                execute(statement)
            log.prepare(self._db)
            execute(f"PRAGMA application_id = {application_id}")

    def _failure(self, error: sqlite3.Error) -> StoreError:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreInUse(f"the file {self._path} is in use: another agent runs in this directory")
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(f"the disk is full: {self._path} cannot grow")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreDamaged(f"the file {self._path} is damaged ({error}); move it away to start anew")
        return StoreFailed(f"the file {self._path} cannot be read or written: {error}; check the disk")
