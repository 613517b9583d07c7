"""The spool of one shard: what stays unacknowledged, in SQLite; a message once, a row a recipient.

The file is a view of the changelog, the shard's partition of the topic `spool` (:mod:`gateway.shard.spool_records`).
What it holds is a function of the last value of each key: it does not matter whether commits come one by one, in chunks
cut anywhere, from a compacted log, or twice. One transaction holds a commit and the offset from which the file reads
on: after a crash or a power failure (WAL, synchronous NORMAL) the last commits may be missing as a whole, and the
changelog brings them again.

Contract: `commit` is atomic; `load` gives rows in the order of their numbers; a message without rows appears in
`finished` in the same commit, and stays there until a later commit forgets it. Every call raises SpoolError if SQLite
fails; a commit that raises has changed nothing and can be made again, alone or as part of a larger one. Until
`catch_up_end`, reads include what no marker has committed.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway.errors import SpoolDamaged, SpoolError
from gateway.shard.messages import Message
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker, Record
from gateway.shard.spool_tables import FenceState, Leftovers, SpoolState, SpoolTables
from gateway.shard.spool_values import SpoolValues
from schemas.envelope import Instruction
from schemas.sql import named_blocks

REMEDY = (
    "repair its directory or disk, or move the file away together with its -wal and -shm files, then start again "
    "(docs/operators.md, 'A broken spool', says what that means)"
)

_CODES_OF_DAMAGE = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""`SQLITE_ERROR`: a table lacks a column, for example."""

_message_decoder = msgspec.msgpack.Decoder(Message)
_delivery_decoder = msgspec.msgpack.Decoder(tuple[int, bool, tuple[int, ...], bool])
_instructions_decoder = msgspec.msgpack.Decoder(list[Instruction])
_clients_decoder = msgspec.msgpack.Decoder(list[str])

T = TypeVar("T")


@dataclass(frozen=True)
class SpooledDelivery:
    row: int
    session: str
    message: Message
    instructions: list[Instruction]
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]
    dup: bool


@dataclass(frozen=True)
class FinishedMessage:
    """A message without rows whose instructions are still to be relinquished. `numbers` are to be forgotten with them:
    the message's own and those of its further instructions."""

    mid: int
    message: Message
    instructions: list[Instruction]
    numbers: list[int]


class SpoolSize(NamedTuple):
    """`rows` that wait for recipients; `file_bytes` of the database and its write-ahead log, 0 in memory."""

    rows: int
    file_bytes: int


class SpoolContents(NamedTuple):
    """What the reading methods of :class:`Spool` of these names return."""

    finished_clients: dict[int, list[str]]
    finished_parts: dict[int, int]
    backlogs: dict[str, tuple[int, int]]
    keyed: list[tuple[str, bytes, int]]
    bundles: list[bytes]
    sources: list[tuple[bytes, bytes]]


class Spool:
    """A shard's spool in the file `path`, or in memory for ":memory:". A file with another version of the schema is
    emptied; one that is damaged raises SpoolDamaged. With `exclusive` no other process can open it: SQLite up to
    3.51.2 may corrupt a file in WAL mode that has two connections (its WAL-reset bug), and a second gateway of the
    same name would deliver everything twice. Not thread-safe, but for `size`: its owner calls it from one thread."""

    def __init__(self, path: str, *, exclusive: bool = False) -> None:
        self._path = path
        self._sql = named_blocks(files("gateway.shard").joinpath("spool.sql").read_text())
        try:
            if path != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            wait_s = 0.0 if exclusive else 5.0  # nobody who has it exclusively gives it up in a moment
            self._db = sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
            self._tables = SpoolTables(self._db, self._sql)
            if exclusive:
                self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("BEGIN IMMEDIATE")  # fails now, not at the first commit, if it cannot be written
            self._db.execute("ROLLBACK")
            check(self._db)
            self._tables.prepare()
            self._rows: int = self._db.execute(self._sql["count_rows"]).fetchone()[0]
        except (sqlite3.Error, OSError) as error:
            if hasattr(self, "_db"):
                self._db.close()
            kind = SpoolDamaged if _is_damage(error, Path(path)) else SpoolError
            raise kind(f"cannot open the spool {path}: {error}; {REMEDY}") from error

    def wipe(self) -> None:
        """Empties the file, which then reads the changelog from offset 0."""
        try:
            self._tables.create()
        except sqlite3.Error as error:
            raise self._not_written(error) from error
        self._rows = 0

    def commit(
        self, batch: SpoolBatch, marker: Marker | None, offset: int, at_ms: int, fences: FenceState | None = None
    ) -> None:
        """Applies all of it or nothing; raises SpoolError (disk full, file damaged).

        For a commit just written to the changelog and for a chunk read from there: `marker` is the last one in it, None
        if it has none; `offset` is behind the last record, `at_ms` is when Kafka appended that, ms since the epoch, and
        `fences` what stands before it, None if that has not changed.
        """
        self._rows += self._write(lambda: self._tables.apply(batch, marker, offset, at_ms, fences))

    def catch_up_end(self) -> Leftovers:
        """The changelog was read to its end, and nobody else writes it: removes what no marker has committed, and rows
        without message. What is left over is returned again until a marker with higher numbers is committed."""
        deleted, leftovers = self._write(self._tables.remove_uncommitted)
        self._rows -= deleted
        return leftovers

    def _write(self, change: Callable[[], T]) -> T:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                result = change()
                self._db.execute("COMMIT")
            except BaseException:
                self._tables.roll_back()
                raise
        except sqlite3.Error as error:
            raise self._not_written(error) from error
        return result

    def _not_written(self, error: sqlite3.Error) -> SpoolError:
        return SpoolError(f"the spool {self._path} cannot be written: {error}")

    @property
    def size(self) -> SpoolSize:
        """From any thread."""
        found = [Path(self._path + suffix) for suffix in ("", "-wal")] if self._path != ":memory:" else []
        return SpoolSize(self._rows, sum(_file_bytes(path) for path in found))

    def state(self) -> SpoolState:
        """Where the file stands."""
        return self._reading(self._tables.state)

    def fences(self) -> FenceState:
        """What the records before the file's offset say of fences."""
        return self._reading(self._tables.fences)

    def records(self, keys: Sequence[bytes]) -> list[Record]:
        """What the changelog is to say under each key: the value, or None if the file has nothing."""
        values = SpoolValues(self._db, self._sql)
        return self._reading(lambda: [(key, values.find(key)) for key in keys])

    def load(self, session: str, after_row: int, limit: int) -> list[SpooledDelivery]:
        """Up to `limit` rows of a session behind `after_row`, oldest first."""
        return self._deliveries(self._read("load", session, after_row, limit))

    def bundle_rows(self, session: str, after_row: int, limit: int, scan: int) -> tuple[list[SpooledDelivery], int]:
        """The oldest rows of a session behind `after_row` whose messages came in bundles: up to `limit` of them, out of
        `scan` rows. Also up to which row that was looked at: `after_row` at the session's end."""
        [(to_row,)] = self._read("scanned_to", session, after_row, scan)
        if to_row is None:
            return [], after_row
        found = self._deliveries(self._read("bundle_rows", session, after_row, to_row, limit))
        return found, found[-1].row if len(found) == limit else to_row

    def rows_of_bundles(self, session: str, ids: Sequence[str]) -> list[SpooledDelivery]:
        """The rows of a session with the messages of these ids that came in bundles."""
        return self._deliveries(self._read("rows_of_bundles", json.dumps([*ids]), session))

    def expired(self, now_ms: int, after_row: int = 0) -> list[SpooledDelivery]:
        """The first rows, 1,000 at most, behind `after_row` whose message's time is over."""
        return self._deliveries(self._read("expired", now_ms, after_row))

    def _deliveries(self, rows: list[Any]) -> list[SpooledDelivery]:
        further: dict[int, list[Instruction]] = {}
        for mid, raw in self._read("further_instructions", json.dumps([*{mid for _, mid, *_ in rows}])):
            further.setdefault(mid, []).extend(_instructions_decoder.decode(raw))
        deliveries = []
        for row, mid, session, delivery, message, raw in rows:
            instructions = [*_instructions_decoder.decode(raw), *further.get(mid, ())]
            deliveries.append(
                SpooledDelivery(
                    row, session, _message_decoder.decode(message), instructions, *_delivery_decoder.decode(delivery)
                )
            )
        return deliveries

    def finished(self) -> list[FinishedMessage]:
        """Messages to relinquish. A further instruction whose message is forgotten is one of its own."""
        found: dict[int, FinishedMessage] = {}
        for number, mid, message, raw in self._read("finished"):
            instructions = _instructions_decoder.decode(raw)
            if mid in found:  # numbers ascend, and a message is older than its further instructions
                found[mid].instructions.extend(instructions)
                found[mid].numbers.append(number)
            else:
                found[number] = FinishedMessage(number, _message_decoder.decode(message), instructions, [number])
        return [*found.values()]

    def positions(self) -> dict[str, bytes]:
        """What was last committed under each name."""
        marker = self.state().marker
        return {} if marker is None else marker.positions

    def keyed(self) -> list[tuple[str, bytes, int]]:
        """Ids of keyed messages with fingerprint and time, oldest first."""
        return list(self._read("keyed"))

    def bundles(self) -> list[bytes]:
        """What was taken of each source of bundles."""
        return [value for (value,) in self._read("bundles")]

    def sources(self) -> list[tuple[bytes, bytes]]:
        """States of sources of redundant feeds, with their keys."""
        return list(self._read("sources"))

    def finished_clients(self) -> dict[int, list[str]]:
        """Clients that are finished with the message at a position on egress[shard], by position."""
        found: dict[int, list[str]] = {}
        for position, _, clients in self._read("finished_clients"):
            found.setdefault(position, []).extend(_clients_decoder.decode(clients))
        return found

    def finished_parts(self) -> dict[int, int]:
        """The number of parts of each of these positions, which is the number of its next part."""
        return {position: part + 1 for position, part, _ in self._read("finished_clients")}

    def contents(self) -> SpoolContents:
        """All that a start needs besides the positions."""
        return SpoolContents(
            self.finished_clients(),
            self.finished_parts(),
            self.backlogs(),
            self.keyed(),
            self.bundles(),
            self.sources(),
        )

    def backlogs(self) -> dict[str, tuple[int, int]]:
        """Rows and bytes (:attr:`Message.size`) waiting, by session."""
        return {session: (count, size) for session, count, size in self._read("backlogs")}

    def last_numbers(self) -> tuple[int, int]:
        """The highest message number and row number that the file has seen."""
        [(mid, row)] = self._read("last_numbers")
        return mid, row

    def _read(self, block: str, *parameters: Any) -> list[Any]:
        return self._reading(lambda: self._db.execute(self._sql[block], parameters).fetchall())

    def _reading(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except sqlite3.Error as error:
            raise SpoolError(f"the spool {self._path} cannot be read: {error}; {REMEDY}") from error

    def close(self) -> None:
        self._db.close()


def _is_damage(error: Exception, path: Path) -> bool:
    """Whether it is the file's content that is wrong, not its place: the disk, permissions, or another process."""
    if isinstance(error, OSError):
        return False
    code = getattr(error, "sqlite_errorcode", None)  # none: found by this process (`check`, `SpoolTables.prepare`)
    return path.is_dir() or code is None or code & 0xFF in _CODES_OF_DAMAGE


def check(db: sqlite3.Connection) -> None:
    """Reads every page once: damage is found here, and not when a client comes for its messages."""
    [(found, *_), *_] = db.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise sqlite3.DatabaseError(f"the file is damaged: {' '.join(found.split())}")


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
