"""How a commit changes the tables of a shard's spool. Its caller begins and ends the transaction."""

import json
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gateway.shard.messages import Message
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker, message_key, row_key
from schemas.envelope import Instruction

VERSION = 7
"""Of the schema: PRAGMA user_version."""

_encode = msgspec.msgpack.Encoder().encode
_marker_decoder = msgspec.msgpack.Decoder(Marker)


class SpoolState(NamedTuple):
    """The last marker, None before the first; the offset of the changelog from which the file reads on; when Kafka
    appended the record before that, ms since the epoch, 0 without one: older tombstones are all applied."""

    marker: Marker | None
    offset: int
    at_ms: int


class Leftovers(NamedTuple):
    """What the end of the changelog shows. `keys` are of records that nobody committed: they need tombstones before the
    next marker. New messages and rows get numbers above `last_mid` and `last_row`, the highest that the file has seen.
    """

    keys: list[bytes]
    last_mid: int
    last_row: int


class FenceState(NamedTuple):
    """What a reader of the changelog that goes on at an offset needs of what stands before it: the fences there, and
    the keys whose last record is void (:mod:`gateway.cluster.fencing`)."""

    fences: list[int]
    unmended: list[bytes]


class SpoolTables:
    """The tables of `spool.sql`, whose named blocks are `sql`. Methods raise sqlite3.Error."""

    def __init__(self, db: sqlite3.Connection, sql: dict[str, str]) -> None:
        self._db = db
        self._sql = sql

    def prepare(self) -> None:
        """Creates the tables if they are not there, or of another version."""
        [(version,)] = self._db.execute("PRAGMA user_version").fetchall()
        if version == 0 and self._db.execute(self._sql["tables"]).fetchall():  # perhaps of an earlier version
            raise sqlite3.DatabaseError("the file is not a view of a changelog")
        if version != VERSION:
            self.create()

    def create(self) -> None:
        """Empty tables, instead of those that are there, in one transaction of its own."""
        tables = [name for (name,) in self._db.execute(self._sql["tables"]).fetchall()]
        drop = "".join(f'DROP TABLE "{name}";' for name in tables)
        schema = f"{drop} {self._sql['schema']} PRAGMA user_version = {VERSION};"
        try:
            self._db.executescript(f"BEGIN IMMEDIATE; {schema} COMMIT;")
        finally:
            self.roll_back()

    def roll_back(self) -> None:
        """Unless SQLite has done that itself."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def apply(
        self, batch: SpoolBatch, marker: Marker | None, offset: int, at_ms: int, fences: FenceState | None = None
    ) -> int:
        """Returns how many rows more there are."""
        db, sql = self._db, self._sql
        messages = [_message_row(mid, mid, message, instructions) for mid, message, instructions in batch.messages]
        messages += [_message_row(number, mid, message, [i]) for number, mid, message, i in batch.instructions]
        db.executemany(sql["put_message"], messages)
        added = {row[0] for row in batch.rows}
        replaced = self._delete("delete_rows", added)
        db.executemany(
            sql["put_row"], [(row, mid, session, _encode(delivery)) for row, mid, session, *delivery in batch.rows]
        )
        deleted = self._delete("delete_rows", batch.deleted_rows)
        touched = {*replaced, *deleted, *self._delete("forget_messages", batch.forgotten)}
        touched.update(row[1] for row in batch.rows)
        touched.update(message[0] for message in batch.messages)
        touched.update(further[1] for further in batch.instructions)
        self._finish(touched)
        self._apply_facts(batch)
        if marker is not None:
            db.execute(sql["put_marker"], (_encode(marker),))
            db.execute(sql["delete_leftovers"], (marker.last_row, marker.last_mid))
        db.execute(sql["put_state"], (offset, at_ms, *_highest(batch, marker)))
        if fences is not None:
            db.execute(sql["delete_fences"])
            db.executemany(sql["put_fence"], [(epoch,) for epoch in fences.fences])
            db.execute(sql["delete_unmended"])
            db.executemany(sql["put_unmended"], [(key,) for key in fences.unmended])
        return len(added) - len(replaced) - len(deleted)

    def _apply_facts(self, batch: SpoolBatch) -> None:
        db, sql = self._db, self._sql
        parts = batch.parts()
        db.executemany(sql["put_part"], [(*part, _encode(clients)) for part, clients in parts.items() if clients])
        db.executemany(sql["delete_part"], [part for part, clients in parts.items() if not clients])
        db.executemany(sql["put_bundles"], [(key, value) for key, value in batch.bundles.items() if value is not None])
        db.executemany(sql["delete_bundles"], [(key,) for key, value in batch.bundles.items() if value is None])
        db.executemany(sql["put_sources"], [(key, value) for key, value in batch.sources.items() if value is not None])
        db.executemany(sql["delete_sources"], [(key,) for key, value in batch.sources.items() if value is None])
        db.executemany(sql["put_keyed"], [(name, *row) for name, row in batch.keyed.items() if row is not None])
        db.executemany(sql["delete_keyed"], [(name,) for name, row in batch.keyed.items() if row is None])

    def _delete(self, block: str, numbers: Iterable[int]) -> list[int]:
        """Deletes these rows or messages, as far as they are there; returns their mids."""
        return [mid for (mid,) in self._db.execute(self._sql[block], (json.dumps([*numbers]),)).fetchall()]

    def _finish(self, mids: Iterable[int]) -> None:
        """Of messages with these mids those are finished that have no rows."""
        touched = (json.dumps([*mids]),)
        self._db.execute(self._sql["not_finished"], touched)
        self._db.execute(self._sql["put_finished"], touched)

    def remove_uncommitted(self) -> tuple[int, Leftovers]:
        """Also rows without message. Returns how many rows were removed."""
        db, sql = self._db, self._sql
        marker = self.state().marker or Marker(0, 0, {})
        numbers = [number for (number,) in db.execute(sql["uncommitted_messages"], (marker.last_mid,)).fetchall()]
        rows = [row for (row,) in db.execute(sql["uncommitted_rows"], (marker.last_row,)).fetchall()]
        db.executemany(sql["put_leftover"], [(message_key(number), None, number) for number in numbers])
        db.executemany(sql["put_leftover"], [(row_key(row), row, None) for row in rows])
        forgotten, deleted = self._delete("forget_messages", numbers), self._delete("delete_rows", rows)
        deleted += [mid for (mid,) in db.execute(sql["delete_orphans"]).fetchall()]
        self._finish({*forgotten, *deleted})
        keys = [key for (key,) in db.execute(sql["leftovers"]).fetchall()]
        [last] = db.execute(sql["last_numbers"]).fetchall()
        return len(deleted), Leftovers(keys, *last)

    def state(self) -> SpoolState:
        [(marker, offset, at_ms)] = self._db.execute(self._sql["state"]).fetchall()
        return SpoolState(None if marker is None else _marker_decoder.decode(marker), offset, at_ms)

    def fences(self) -> FenceState:
        epochs = [epoch for (epoch,) in self._db.execute(self._sql["fences"]).fetchall()]
        return FenceState(epochs, [key for (key,) in self._db.execute(self._sql["unmended"]).fetchall()])


def _highest(batch: SpoolBatch, marker: Marker | None) -> tuple[int, int]:
    """The highest message number and row number that a commit names."""
    numbers = [*batch.forgotten, *(message[0] for message in batch.messages)]
    numbers += [further[0] for further in batch.instructions]
    rows = [*batch.deleted_rows, *(row[0] for row in batch.rows)]
    if marker is not None:
        numbers.append(marker.last_mid)
        rows.append(marker.last_row)
    return max(numbers, default=0), max(rows, default=0)


def _message_row(number: int, mid: int, message: Message, instructions: list[Instruction]) -> tuple[object, ...]:
    """A further instruction neither expires nor has a size. Messages that came in bundles are found by their id."""
    is_message = number == mid
    expires, size = (message.expires, message.size) if is_message else (None, 0)
    bundle = message.id if is_message and message.bundle is not None else None
    return number, mid, expires, size, bundle, _encode(message), _encode(instructions)
