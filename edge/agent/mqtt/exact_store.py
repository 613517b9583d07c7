"""A client's store that passes messages between two files without losing or repeating one (M2, M16).

*Out*: a message goes from the stand-in's spool into this outbox. The number that it had in the spool is recorded in the
transaction that adds it. After a kill, the spool's messages up to that number are here already.

*In*: a message of QoS 2 that the server has sent goes into the table `arrived` in the transaction that records its
packet id, before PUBREC is sent. From there it goes into the stand-in's file, which records its number in turn. So an
exchange whose end the server knows has left its message here, once.

Either file may be moved away, since it is damaged, and made anew, and then its numbers begin again. So a number that
one file has of the other names the other's incarnation, and counts in no other one. Or an earlier copy of it is put
back from a backup: it gives numbers a second time. Its highest one is then below what the other file has of it, and
what it holds counts as new: some messages may come twice, and none is lost.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edge.agent.agent_store import AgentStore
from edge.client.sqlite_file import create_tables
from edge.client.store import Batch
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


class ExactStore(AgentStore):
    """`moves`, `unmoved` and `arrives` are called on the event loop; the others on the store's thread. Read-only:
    `last_arrived`, the highest number that anything that had arrived had when the file was opened."""

    last_arrived: int

    def __init__(self, path: str | Path, client_id: str, log_entries: int) -> None:
        self._moving: dict[int, tuple[int, int, str]] = {}
        self._arriving: dict[int, bytes] = {}
        self.on_arrived: Callable[[], None] | None = None  # on the store's thread: there is more in `arrived`
        super().__init__(path, client_id, log_entries)

    # -- out -----------------------------------------------------------------------------------------------------------

    def moves(self, sequence: int, spool: int, number: int, identifier: str) -> None:
        """The message with this sequence, about to be committed, was the spool's with this number and id; `spool`: the
        incarnation of the spool's file."""
        self._moving[sequence] = spool, number, identifier

    def unmoved(self, sequence: int) -> None:
        """Its commit has failed."""
        self._moving.pop(sequence, None)

    def position(self, spool: int) -> int:
        """The number of the newest message that has come from the spool in the file of this incarnation; 0: none.
        Raises StoreError."""
        with self._translated():
            row = self._db.execute(_SQL["position"], (spool,)).fetchone()
            return int(row[0]) if row is not None else 0

    # -- in ------------------------------------------------------------------------------------------------------------

    def arrives(self, packet_id: int, content: bytes | None) -> None:
        """A message of QoS 2 is about to be acknowledged; `content` is kept in that transaction. None: it is not to be
        kept."""
        if content is None:
            self._arriving.pop(packet_id, None)
        else:
            self._arriving[packet_id] = content

    def arrive(self, content: bytes) -> None:
        """Keeps a message of QoS 0 or 1, before it is acknowledged. Raises StoreError."""
        with self.transaction() as db:
            db.execute(_SQL["add_arrived"], (content,))

    def arrived(self, after: int, count: int) -> list[tuple[int, bytes]]:
        """What has arrived, in order. Raises StoreError."""
        with self._translated():
            return self._db.execute(_SQL["arrived"], (after, count)).fetchall()

    def forget_arrived(self, number: int) -> None:
        """All up to this number are in the stand-in's file. Raises StoreError."""
        with self.transaction() as db:
            db.execute(_SQL["forget_arrived"], (number,))

    # -- inside --------------------------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        for sequence in batch.added:
            self._moving.pop(sequence, None)
        gone = [self._arriving.pop(packet_id, None) for packet_id, is_accepted in batch.inbound.items() if is_accepted]
        if any(content is not None for content in gone) and self.on_arrived is not None:
            self.on_arrived()

    def _make(self, *, is_new: bool) -> None:
        super()._make(is_new=is_new)
        create_tables(self._db, _SQL["schema"])
        (self.last_arrived,) = self._db.execute(_SQL["last_arrived"]).fetchone()

    def _record(self, db: sqlite3.Connection, batch: Batch) -> None:
        for sequence in batch.added:
            if sequence in self._moving:
                spool, number, identifier = self._moving[sequence]
                db.execute(_SQL["set_position"], (spool, number))
                db.execute(_SQL["add_id"], (sequence, identifier))
        for packet_id, is_accepted in batch.inbound.items():
            if is_accepted and packet_id in self._arriving:
                db.execute(_SQL["add_arrived"], (self._arriving[packet_id],))
        super()._record(db, batch)
        if batch.removed:
            db.executemany(_SQL["remove_id"], [(sequence,) for sequence in batch.removed])

    def _was_accepted_before(self, sequence: int) -> bool:
        return sequence in self._moving

    def _other_id(self, db: sqlite3.Connection, sequence: int) -> str | None:
        row = db.execute(_SQL["id"], (sequence,)).fetchone()
        return row[0] if row is not None else None
