"""The spool: what stays unacknowledged, in SQLite beside the home; a message once, a row a recipient.

One commit holds the rows and the positions from which the logs are read again, so the two never disagree: after a crash
or a power failure (WAL, synchronous NORMAL) the last commits may be missing as a whole, and Kafka brings them again.

Contract: `commit` is atomic; `load` gives rows in the order they were added; a message whose last row is deleted
appears in `finished` in the same commit, and stays there until a later commit forgets it. Every call raises SpoolError
if SQLite fails; a commit that raises has changed nothing and can be made again, alone or as part of a larger one.
"""

import sqlite3
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gateway.errors import SpoolError
from gateway.shard.messages import Message
from gateway.shard.spool_batch import SpoolBatch
from schemas.envelope import Instruction
from schemas.sql import named_blocks

_REMEDY = (
    "repair its directory or disk, or move the file away together with its -wal and -shm files, then start again "
    "(docs/operators.md, 'A broken spool', says what is lost)"
)

_encode = msgspec.msgpack.Encoder().encode
_message_decoder = msgspec.msgpack.Decoder(Message)
_entry_decoder = msgspec.msgpack.Decoder(tuple[int, bool, tuple[int, ...], bool])
_instructions_decoder = msgspec.msgpack.Decoder(list[tuple[int, int, int, int | None, int, str]])


@dataclass(frozen=True)
class SpooledEntry:
    row: int
    session: str
    shard: int
    message: Message
    instructions: list[Instruction]
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]
    dup: bool


class SpoolSize(NamedTuple):
    """`rows` that wait for recipients; `file_bytes` of the database and its write-ahead log, 0 in memory."""

    rows: int
    file_bytes: int


@dataclass(frozen=True)
class FinishedMessage:
    """A message without rows whose instructions are still to be relinquished."""

    mid: int
    shard: int
    message: Message
    instructions: list[Instruction]


class Spool:
    """A spool in the file `path`, or in memory for ":memory:". With `exclusive` no other process can open it: SQLite up
    to 3.51.2 may corrupt a file in WAL mode that has two connections (its WAL-reset bug), and a second gateway of the
    same name would deliver everything twice. Not thread-safe, but for `size`: its owner calls it from one thread."""

    def __init__(self, path: str, *, exclusive: bool = False) -> None:
        self._path = path
        self._sql = named_blocks(files("gateway.shard").joinpath("spool.sql").read_text())
        try:
            if path != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            if exclusive:
                self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(self._sql["schema"])
            self._db.execute("BEGIN IMMEDIATE")  # fails now, not at the first commit, if it cannot be written
            self._db.execute("ROLLBACK")
            self._check()
            self._rows: int = self._db.execute(self._sql["count_rows"]).fetchone()[0]
            if self._db.execute(self._sql["has_payload_bytes"]).fetchone() == (0,):  # of an earlier version
                self._db.execute(self._sql["add_payload_bytes"])
        except (sqlite3.Error, OSError) as error:
            raise SpoolError(f"cannot open the spool {path}: {error}; {_REMEDY}") from error

    def _check(self) -> None:
        """Reads every page once: damage is found here, and not when a client comes for its messages."""
        [(found, *_), *_] = self._db.execute("PRAGMA quick_check(1)").fetchall()
        if found != "ok":
            raise sqlite3.DatabaseError(f"the file is damaged: {' '.join(found.split())}")

    def commit(self, batch: SpoolBatch) -> None:
        """Applies the whole batch or nothing; raises SpoolError (disk full, file damaged)."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                deleted = self._apply(batch)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite may have rolled back by itself
                    self._db.execute("ROLLBACK")
                raise
            self._rows += len(batch.rows) - deleted
        except sqlite3.Error as error:
            raise SpoolError(f"the spool {self._path} cannot be written: {error}") from error

    @property
    def size(self) -> SpoolSize:
        """From any thread."""
        found = [Path(self._path + suffix) for suffix in ("", "-wal")] if self._path != ":memory:" else []
        return SpoolSize(self._rows, sum(_file_bytes(path) for path in found))

    def _apply(self, batch: SpoolBatch) -> int:
        """Returns how many rows it has deleted."""
        db, sql = self._db, self._sql
        db.executemany(
            sql["add_message"],
            [
                (mid, shard, m.expires, _encode(m), _encode(instructions), len(m.payload))
                for mid, shard, m, instructions in batch.messages
            ],
        )
        db.executemany(
            sql["add_row"], [(row, mid, session, _encode(entry)) for row, mid, session, *entry in batch.rows]
        )
        for mid, new_mid, shard, message, instruction in batch.instructions:
            self._add_instruction(mid, new_mid, shard, message, instruction)
        deleted: list[int] = []
        for row in batch.deleted_rows:
            deleted += (mid for (mid,) in db.execute(sql["delete_row"], (row,)).fetchall())
        for session in batch.deleted_sessions:
            deleted += (mid for (mid,) in db.execute(sql["delete_session"], (session,)).fetchall())
        touched = set(deleted)
        if touched:
            db.executemany(sql["finish_message"], [(mid,) for mid in sorted(touched)])
            db.execute(sql["delete_finished_message"])
        db.executemany(sql["forget_finished"], [(mid,) for mid in batch.forgotten])
        db.executemany(sql["put_position"], list(batch.positions.items()))
        db.executemany(sql["delete_position"], [(name,) for name in batch.dropped_positions])
        db.executemany(sql["put_keyed"], [(name, *row) for name, row in batch.keyed.items() if row is not None])
        db.executemany(sql["delete_keyed"], [(name,) for name, row in batch.keyed.items() if row is None])
        return len(deleted)

    def _add_instruction(self, mid: int, new_mid: int, shard: int, message: Message, instruction: Instruction) -> None:
        """To the message while it is there, else as one that is finished at once."""
        db, sql = self._db, self._sql
        found = db.execute(sql["instructions_of"], (mid,)).fetchone()
        if found is None:
            db.execute(sql["add_finished"], (new_mid, _encode(message), _encode([instruction]), shard))
        else:
            db.execute(sql["put_instructions"], (_encode([*_instructions(found[0]), instruction]), mid))

    def load(self, session: str, after_row: int, limit: int) -> list[SpooledEntry]:
        """Up to `limit` rows of a session behind `after_row`, oldest first."""
        rows = self._read("load", session, after_row, limit)
        return [_spooled_entry(*row) for row in rows]

    def expired(self, now_ms: int) -> list[SpooledEntry]:
        """Up to 1,000 rows whose message's time is over."""
        rows = self._read("expired", now_ms)
        return [_spooled_entry(*row) for row in rows]

    def finished(self) -> list[FinishedMessage]:
        """Messages to relinquish."""
        return [
            FinishedMessage(mid, shard, _message_decoder.decode(message), _instructions(instructions))
            for mid, message, instructions, shard in self._read("finished")
        ]

    def positions(self) -> dict[str, bytes]:
        """What was last committed under each name."""
        return dict(self._read("positions"))

    def keyed(self) -> list[tuple[str, bytes, int]]:
        """Ids of keyed messages with fingerprint and time, oldest first."""
        return list(self._read("keyed"))

    def backlogs(self) -> dict[str, tuple[int, int]]:
        """Rows and bytes of payload waiting, by session."""
        return {session: (count, size) for session, count, size in self._read("backlogs")}

    def last_numbers(self) -> tuple[int, int]:
        """The highest message number and row number in use."""
        [(mid, row)] = self._read("last_numbers")
        return mid, row

    def _read(self, block: str, *parameters: Any) -> list[Any]:
        try:
            return self._db.execute(self._sql[block], parameters).fetchall()
        except sqlite3.Error as error:
            raise SpoolError(f"the spool {self._path} cannot be read: {error}; {_REMEDY}") from error

    def close(self) -> None:
        self._db.close()


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _spooled_entry(
    row: int, session: str, entry: bytes, message: bytes, instructions: bytes, shard: int
) -> SpooledEntry:
    qos, retain, subscription_ids, dup = _entry_decoder.decode(entry)
    decoded = _message_decoder.decode(message)
    return SpooledEntry(row, session, shard, decoded, _instructions(instructions), qos, retain, subscription_ids, dup)


def _instructions(raw: bytes) -> list[Instruction]:
    return [Instruction(*fields) for fields in _instructions_decoder.decode(raw)]
