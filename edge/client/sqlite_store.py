"""The store as a SQLite file (M2); :mod:`edge.client.sqlite_file` says how it is opened and what a commit means.

Opening reads the b-tree of the outbox once, to count; payloads too large for its pages are not read. Damage that this
does not meet is found when the page is read, and reported as StoreDamaged then.
"""

import sqlite3
from pathlib import Path
from typing import Any, Final

import msgspec

from edge.client.errors import StoreDamaged, StoreForeign
from edge.client.sqlite_file import SqliteFile, create_tables
from edge.client.store import EXPIRED_MAX, Batch, Recovered, SessionRow, StoredMessage, WaitingRow, new_incarnation
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_APPLICATION_ID: Final = 0x57415953  # "WAYS"
_FORMAT: Final = 1
_encode: Final = msgspec.msgpack.encode
_decode: Final = msgspec.msgpack.decode


class SqliteStore(SqliteFile):
    """Implements :class:`edge.client.store.Store` on the file `path`, which is made if there is none. Read-only:
    `incarnation`, a number that names the file for ever."""

    incarnation: int

    def __init__(self, path: str | Path, client_id: str) -> None:
        self._client_id = client_id
        self._opening = new_incarnation()
        super().__init__(
            Path(path),
            _APPLICATION_ID,
            name="the outbox",
            in_use=" by another process: each client needs its own file",
            foreign="no outbox of Waystation: use another path",
        )

    def recover(self) -> Recovered:
        with self._translated():
            messages, size, waiting = self._db.execute(_SQL["totals"]).fetchone()
            in_flight = [_message(row) for row in self._db.execute(_SQL["in_flight"])]
            released = list(self._db.execute(_SQL["released"]))
            accepted = [packet_id for (packet_id,) in self._db.execute(_SQL["inbound"])]
            open_ids = [packet_id for (packet_id,) in self._db.execute(_SQL["open_exchanges"])]
            row = self._db.execute(_SQL["session"]).fetchone()
        client_id, is_established, last_packet_id, last_sequence, clock_s, wall_s, is_taken_over = row
        counters = last_packet_id, last_sequence, clock_s, wall_s
        session = SessionRow(client_id, bool(is_established), *counters, bool(is_taken_over))
        return Recovered(session, in_flight, released, accepted, waiting, messages, size, self._opening, open_ids)

    def commit(self, batch: Batch) -> None:
        with self.transaction() as db:
            many = db.executemany
            self._record(db, batch)
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
                db.execute(_SQL["accept" if is_accepted else "complete"], (packet_id,))
            for packet_id, is_open in batch.open_ids.items():
                db.execute(_SQL["open_exchange" if is_open else "end_exchange"], (packet_id,))
            if batch.session is not None:
                db.execute(_SQL["save_session"], msgspec.structs.astuple(batch.session))

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

    # -- inside --------------------------------------------------------------------------------------------------------

    def _record(self, db: sqlite3.Connection, batch: Batch) -> None:
        """For subclasses that keep more in the file: called in the transaction, before the batch is applied."""

    def _make(self, *, is_new: bool) -> None:
        execute = self._db.execute
        if is_new:
            create_tables(self._db, _SQL["schema"])
            execute(_SQL["save_session"], msgspec.structs.astuple(SessionRow(self._client_id)))
            execute(f"PRAGMA user_version = {_FORMAT}")
        # Files of earlier versions have none of these.
        create_tables(self._db, _SQL["later_schema"])
        if "is_taken_over" not in [row[1] for row in execute("PRAGMA table_info(session)")]:
            execute(_SQL["add_is_taken_over"])
        execute(_SQL["identify"], (new_incarnation(),))
        if "incarnation" not in [row[1] for row in execute("PRAGMA table_info(outbox)")]:
            execute(_SQL["add_incarnation"])
            execute(_SQL["set_incarnation"])

    def _open(self) -> None:
        super()._open()
        self._check_format(_FORMAT, "path")
        owner = self._db.execute(_SQL["session"]).fetchone()
        if owner is None:
            raise StoreDamaged(f"{self._path} is damaged: its session is missing; move the file away to start anew")
        if owner[0] != self._client_id:
            raise StoreForeign(
                f"{self._path} is the outbox of the client {owner[0]!r}, not of {self._client_id!r}: "
                "each client needs a file of its own"
            )
        (self.incarnation,) = self._db.execute(_SQL["incarnation"]).fetchone()


def _row(message: StoredMessage) -> tuple[Any, ...]:
    properties = None if message.properties is None else _encode(message.properties)
    return (
        *(message.sequence, message.topic, message.payload, message.qos, message.retain),
        *(properties, message.expires_s, message.size, message.packet_id, message.incarnation),
    )


def _message(row: tuple[Any, ...]) -> StoredMessage:
    sequence, topic, payload, qos, retain, properties, *rest = row
    if not (isinstance(payload, bytes) and isinstance(topic, str)):
        raise ValueError("a message has a value of the wrong type")
    decoded = None if properties is None else _properties(properties)
    return StoredMessage(sequence, topic, payload, qos, bool(retain), decoded, *rest)


def _properties(raw: bytes) -> dict[str, Any]:
    """MessagePack has no tuples: user properties are pairs."""
    properties: dict[str, Any] = _decode(raw, type=dict[str, Any])
    if "user_property" in properties:
        properties["user_property"] = [(name, value) for name, value in properties["user_property"]]
    return properties
