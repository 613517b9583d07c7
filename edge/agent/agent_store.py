"""The client library's store with the log of ways, and with messages that failed until their sender knows (M2, M20).

Both are in the outbox's file and change in the transaction of the outbox: a message that is refused or expires moves
from `outbox` to `failed`, and leaves it when its report has been accepted. So no kill loses a message silently.
"""

import sqlite3
from pathlib import Path
from typing import Any, Final

import msgspec

from edge.agent import way
from edge.agent.envelope import id_of
from edge.agent.way import Step, WayLog
from edge.client.sqlite_file import create_tables
from edge.client.sqlite_store import SqliteStore
from edge.client.store import Batch
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
FAILED_BYTES: Final = 65_536
"""What is kept of a failed message: enough for its header."""


class Failed(msgspec.Struct, frozen=True):
    """A message that the platform does not have; `state` is "refused" or "expired". `payload` is its beginning."""

    sequence: int
    state: str
    reason: str
    properties: list[tuple[str, str]]
    payload: bytes


class AgentStore(SqliteStore):
    """A :class:`edge.client.store.Store`. Call `fails` before the commit that removes the message. `part` is its name
    in the log of ways."""

    part = "outbox"

    def __init__(self, path: str | Path, client_id: str, log_entries: int) -> None:
        self._log = WayLog(log_entries)
        self._failing: dict[int, tuple[str, str]] = {}
        self._may_have_failed = True  # perhaps in an earlier process
        super().__init__(path, client_id)

    def fails(self, sequence: int, state: str, reason: str) -> None:
        """The message has been refused or has expired; its removal is about to be committed. From any thread."""
        self._failing[sequence] = state, reason

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        for sequence in batch.removed:
            if self._failing.pop(sequence, None) is not None:
                self._may_have_failed = True

    def take_news(self) -> bool:
        """Whether messages may have failed since the last call. From any thread."""
        may_have, self._may_have_failed = self._may_have_failed, False
        return may_have

    def try_again(self) -> None:
        """A sender could not be told yet: there is news. From any thread."""
        self._may_have_failed = True

    def first_failed(self) -> Failed | None:
        """The oldest message that failed and whose sender does not know. Raises StoreError."""
        with self._translated():
            row = self._db.execute(_SQL["failed"]).fetchone()
            if row is None:
                return None
            sequence, state, reason, properties, payload = row
            return Failed(sequence, state, reason, _pairs(_decoded(properties)), payload)

    def forget_failed(self, sequence: int) -> None:
        """The sender knows, or cannot be told. Raises StoreError."""
        with self.transaction() as db:
            db.execute(_SQL["forget_failed"], (sequence,))

    @property
    def step_counts(self) -> dict[tuple[str, str], int]:
        """See :attr:`edge.agent.way.WayLog.counts`. From any thread."""
        return dict(self._log.counts)

    def newest(self, count: int) -> list[Step]:
        """See :meth:`edge.agent.way.WayLog.newest`. Raises StoreError."""
        with self._translated():
            return self._log.newest(self._db, count)

    def steps_of(self, identifier: str) -> list[Step]:
        """See :meth:`edge.agent.way.WayLog.of_message`. Raises StoreError."""
        with self._translated():
            return self._log.of_message(self._db, identifier)

    def _make(self, *, is_new: bool) -> None:
        super()._make(is_new=is_new)
        self._log.prepare(self._db)
        create_tables(self._db, _SQL["schema"])

    def _record(self, db: sqlite3.Connection, batch: Batch) -> None:
        at_s = batch.session.wall_s if batch.session is not None else 0.0
        ids = {sequence: _id(message.properties) for sequence, message in batch.added.items()}
        steps: list[Step] = []

        def step(sequence: int, part: str, event: str, detail: str = "") -> None:
            if sequence not in ids:
                row = db.execute(_SQL["properties"], (sequence,)).fetchone()
                ids[sequence] = _id(_decoded(row[0])) if row is not None else None
            identifier = ids[sequence] or self._other_id(db, sequence)
            if identifier is not None:
                steps.append(Step(identifier, at_s, part, event, detail))

        for sequence, message in batch.added.items():
            if self._was_accepted_before(sequence):
                continue
            kind = dict(_pairs(message.properties)).get("kind", "")
            step(sequence, kind, way.ACCEPTED, f"to {message.topic}, {len(message.payload)} bytes")
        for sequence in batch.assigned:
            step(sequence, self.part, way.HANDED_OVER)
        for sequence in batch.removed:
            state, reason = self._failing.get(sequence, (way.ACKNOWLEDGED, ""))
            step(sequence, self.part, state, reason)
            if state != way.ACKNOWLEDGED:
                db.execute(_SQL["keep_failed"], (state, reason, FAILED_BYTES, sequence))
        self._log.add(db, steps)

    def _was_accepted_before(self, sequence: int) -> bool:
        """For subclasses: whether another part of the agent has accepted the message, and its log says so."""
        return False

    def _other_id(self, db: sqlite3.Connection, sequence: int) -> str | None:
        """For subclasses: the id of a message that has no envelope."""
        return None


def _decoded(properties: bytes | None) -> dict[str, Any]:
    return msgspec.msgpack.decode(properties, type=dict[str, Any]) if properties else {}


def _pairs(properties: dict[str, Any] | None) -> list[tuple[str, str]]:
    return [(name, value) for name, value in (properties or {}).get("user_property", ())]


def _id(properties: dict[str, Any] | None) -> str | None:
    return id_of(_pairs(properties))
