"""The store as a SQLite file: WAL, `synchronous=FULL`, one connection, one thread (M2).

A commit returns once the operating system has the WAL on disk (fsync). The connection holds the file's lock in
exclusive mode for as long as it is open: a second process gets StoreInUse, and there is no shared-memory file. Exactly
one connection uses the WAL, because SQLite before 3.51.3 may lose commits with two.

Opening reads the b-tree of the outbox once, to count; payloads too large for its pages are not read. Damage that this
does not meet is found when the page is read, and reported as StoreDamaged then.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from edge.client.errors import DiskFull, StoreDamaged, StoreError, StoreFailed, StoreForeign, StoreInUse
from edge.client.store import EXPIRED_MAX, Batch, Recovered, SessionRow, StoredMessage, WaitingRow
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_APPLICATION_ID: Final = 0x57415953  # "WAYS"
_FORMAT: Final = 1
_WAL_BYTES_MAX: Final = 16 << 20  # what is kept of the WAL's file between checkpoints
_encode: Final = msgspec.msgpack.encode
_decode: Final = msgspec.msgpack.decode


class SqliteStore:
    """Implements :class:`edge.client.store.Store` on the file `path`, which is made if there is none.

    Raises StoreInUse, StoreForeign, StoreDamaged, StoreError (the directory is missing, no permission).
    """

    def __init__(self, path: str | Path, client_id: str) -> None:
        self._path = Path(path)
        self._client_id = client_id
        self._create()
        try:
            self._db = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"the outbox {self._path} cannot be opened: {error}") from error
        try:
            with self._translated():
                self._open()
        except BaseException:
            self._db.close()
            raise

    def recover(self) -> Recovered:
        with self._translated():
            messages, size, waiting = self._db.execute(_SQL["totals"]).fetchone()
            in_flight = [_message(row) for row in self._db.execute(_SQL["in_flight"])]
            released = list(self._db.execute(_SQL["released"]))
            accepted = [packet_id for (packet_id,) in self._db.execute(_SQL["inbound"])]
            row = self._db.execute(_SQL["session"]).fetchone()
        session = SessionRow(row[0], bool(row[1]), *row[2:])
        return Recovered(session, in_flight, released, accepted, waiting, messages, size)

    def commit(self, batch: Batch) -> None:
        many = self._db.executemany
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._record(self._db, batch)
            if batch.added:
                many(_SQL["add"], map(_row, batch.added.values()))
            if batch.assigned:
                many(_SQL["assign"], [(packet_id, sequence) for sequence, packet_id in batch.assigned.items()])
            if batch.released:
                many(_SQL["release"], batch.released.items())
            if batch.removed:
                removed = [(sequence,) for sequence in batch.removed]
                many(_SQL["remove"], removed)
                many(_SQL["forget_released"], removed)
            for packet_id, is_accepted in batch.inbound.items():
                self._db.execute(_SQL["accept" if is_accepted else "complete"], (packet_id,))
            if batch.session is not None:
                self._db.execute(_SQL["save_session"], msgspec.structs.astuple(batch.session))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._failure(error) from error

    def waiting(self, after: int, messages_max: int, size_max: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        with self._translated():
            rows = self._db.execute(_SQL["waiting"], (after, messages_max))
            for row in rows:
                message = _message(row)
                size_max -= message.size
                if found and size_max < 0:
                    break
                found.append(message)
            rows.close()
        return found

    def expired(self, now_s: float) -> list[WaitingRow]:
        with self._translated():
            return [WaitingRow(*row) for row in self._db.execute(_SQL["expired"], (now_s, EXPIRED_MAX))]

    def next_expiry(self) -> float | None:
        with self._translated():
            (expires_s,) = self._db.execute(_SQL["next_expiry"]).fetchone()
        return None if expires_s is None else float(expires_s)

    def close(self) -> None:
        self._db.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Makes the file, readable by its owner only, and its directory entry durable."""
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileExistsError:
            return
        except OSError as error:
            raise StoreError(f"the outbox {self._path} cannot be made: {error.strerror}") from error
        os.close(descriptor)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _record(self, db: sqlite3.Connection, batch: Batch) -> None:
        """For subclasses that keep more in the file: called in the transaction, before the batch is applied."""

    def _open(self) -> None:
        execute = self._db.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        # Before anything is written: whose file is it?
        (application_id,) = execute("PRAGMA application_id").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application_id != _APPLICATION_ID:
            raise StoreForeign(f"{self._path} is no outbox of Waystation, but another SQLite file: use another path")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
        execute("BEGIN EXCLUSIVE")  # takes the lock, which is kept until the file is closed
        if not tables:
            for statement in _SQL["schema"].split(";"):
                execute(statement)
            execute(_SQL["save_session"], msgspec.structs.astuple(SessionRow(self._client_id)))
            execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            execute(f"PRAGMA user_version = {_FORMAT}")
        execute("COMMIT")
        (version,) = execute("PRAGMA user_version").fetchone()
        if version != _FORMAT:
            raise StoreForeign(
                f"{self._path} has format {version}, but this version of Waystation reads format {_FORMAT}: "
                "use the version that wrote it, or another path"
            )
        owner = execute(_SQL["session"]).fetchone()
        if owner is None:
            raise StoreDamaged(f"{self._path} is damaged: its session is missing; move the file away to start anew")
        if owner[0] != self._client_id:
            raise StoreForeign(
                f"{self._path} is the outbox of the client {owner[0]!r}, not of {self._client_id!r}: "
                "each client needs a file of its own"
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as ours. A value of the wrong type is damage, too."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._failure(error) from error
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise StoreDamaged(f"the outbox {self._path} is damaged: {error}; move it away to start anew") from error

    def _failure(self, error: sqlite3.Error) -> StoreError:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreInUse(f"the outbox {self._path} is in use by another process: each client needs its own file")
        if code == sqlite3.SQLITE_NOTADB:
            return StoreForeign(f"{self._path} is no outbox of Waystation: use another path")
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(f"the disk is full: the outbox {self._path} cannot grow")
        if code == sqlite3.SQLITE_CORRUPT:
            return StoreDamaged(f"the outbox {self._path} is damaged ({error}); move it away to start anew")
        return StoreFailed(f"the outbox {self._path} cannot be read or written: {error}; check the disk")

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:
                self._db.close()  # what was not committed is not there when it is opened again


def _row(message: StoredMessage) -> tuple[Any, ...]:
    properties = None if message.properties is None else _encode(message.properties)
    return (
        *(message.sequence, message.topic, message.payload, message.qos, message.retain),
        *(properties, message.expires_s, message.size, message.packet_id),
    )


def _message(row: tuple[Any, ...]) -> StoredMessage:
    sequence, topic, payload, qos, retain, properties, expires_s, size, packet_id = row
    if not (isinstance(payload, bytes) and isinstance(topic, str)):
        raise ValueError("a message has a value of the wrong type")
    decoded = None if properties is None else _properties(properties)
    return StoredMessage(sequence, topic, payload, qos, bool(retain), decoded, expires_s, size, packet_id)


def _properties(raw: bytes) -> dict[str, Any]:
    """MessagePack has no tuples: user properties are pairs."""
    properties: dict[str, Any] = _decode(raw, type=dict[str, Any])
    if "user_property" in properties:
        properties["user_property"] = [(name, value) for name, value in properties["user_property"]]
    return properties
