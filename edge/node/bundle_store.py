"""The node's file (M2): bundles, receipts, what was seen, what arrived; :mod:`edge.client.sqlite_file` says how it is
opened and what a commit means.

One commit applies a whole :class:`Batch`. Ciphertexts have a table of their own, so that a start reads headers only:
100,000 waiting bundles cost their headers, whatever they weigh. Integers of peers may have 64 bits without a sign,
which SQLite does not have. So they stand inside headers and states, which are MessagePack here: it takes a tenth of the
time that their format on links takes.

All methods are called on one thread.
"""

import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from bundles import receipt as receipt_format
from bundles.bundle import Header, Kind
from bundles.errors import FormatError
from bundles.known_certificates import OF_A_NAME_MAX
from bundles.seen import SeenState, Source
from edge.client.errors import StoreDamaged, StoreForeign
from edge.client.sqlite_file import SqliteFile, create_tables
from edge.mesh.known_receipts import KnownReceipts
from edge.mesh.limits import MeshLimits
from edge.mesh.pending_reports import PendingReport
from edge.node.at_platform import AtPlatformRow
from edge.node.batch import Batch, BundleRow, InboxRow, Meta, NoticeRow, Recovered, Step, UnsealedRow
from edge.node.held_on_disk import DiskHeld, HeaderRow, HeldOnDisk, Sealed, header_row
from schemas.events import MessagePresenceEvent
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_APPLICATION_ID: Final = 0x5741594E  # "WAYN"
_FORMAT: Final = 3
_encode: Final = msgspec.msgpack.encode
_decode: Final = msgspec.msgpack.decode
_KINDS: Final = {int(kind): kind for kind in Kind}
_header_decoder: Final = msgspec.msgpack.Decoder(HeaderRow)


class StepLog(Protocol):
    """The log of messages' ways, in the node's file; `add` is called in the transaction of what happened."""

    def prepare(self, db: sqlite3.Connection) -> None:
        """Makes its tables."""

    def add(self, db: sqlite3.Connection, steps: Iterable[Step]) -> None:
        """Writes steps down."""


class BundleStore(SqliteFile):
    """`name`: the agent's. `incarnation`: of a store that is made now. `receipts`, `certificates`: how many are
    kept."""

    def __init__(
        self, path: Path, name: str, incarnation: int, *, receipts: int, certificates: int, log: StepLog | None = None
    ) -> None:
        self._owner, self._incarnation, self._log = name, incarnation, log
        self._receipts, self._certificates = receipts, certificates * OF_A_NAME_MAX
        super().__init__(
            path,
            _APPLICATION_ID,
            name="the mesh's store",
            in_use=" by another process: each agent needs its own directory",
            foreign="no mesh store of Waystation: use another directory",
        )
        with self._translated():
            (self._number,) = self._db.execute(_SQL["last_bundle"]).fetchone()

    # -- reading -------------------------------------------------------------------------------------------------------

    def recover(self) -> Recovered:
        """Everything but ciphertexts, plaintexts and the inbox."""
        execute, records = self._db.execute, HeldOnDisk()
        with self._translated(), _Decoding(self._name):
            found = Recovered(
                Meta(*execute(_SQL["node"]).fetchone()),
                records,
                [_stored(row, records) for row in execute(_SQL["bundles"])],
                [UnsealedRow(_header(row[2]), row[0], row[1], b"") for row in execute(_SQL["unsealed"])],
                self._known_receipts(),
                [AtPlatformRow(*row) for row in execute(_SQL["at_platform"])],
                [self._seen(*row) for row in execute(_SQL["seen"]).fetchall()],
                [row[0] for row in execute(_SQL["certificates"])],
                next((row[0] for row in execute(_SQL["revocations"])), b""),
                [_report(*row) for row in execute(_SQL["reports"])],
                execute(_SQL["inbox_totals"]).fetchone(),
                execute(_SQL["last_notice"]).fetchone()[0],
            )
            execute("PRAGMA shrink_memory")  # the pages that were read are not needed again
            return found

    def ciphertexts(self, message_ids: Iterable[str], size_max: int = 0) -> dict[str, Sealed]:
        """And signatures, of the messages that are still there: the first one, then no more than `size_max` bytes."""
        found: dict[str, Sealed] = {}
        with self._translated():
            for message_id in message_ids:
                row = self._db.execute(_SQL["ciphertext"], (UUID(message_id).bytes,)).fetchone()
                if row is not None:
                    size_max -= len(row[0])
                    found[message_id] = Sealed(*row)
                if size_max <= 0:
                    break
        return found

    def receipts(self, message_ids: Iterable[str]) -> list[bytes]:
        """Those for these messages, encoded, without those that are not there."""
        with self._translated():
            rows = (self._db.execute(_SQL["receipt"], (UUID(one).bytes,)).fetchone() for one in message_ids)
            return [row[0] for row in rows if row is not None]

    def plaintext(self, sequence: int) -> bytes:
        """Of a message that is not sealed yet."""
        with self._translated():
            (found,) = self._db.execute(_SQL["plaintext"], (sequence,)).fetchone()
        return bytes(found)

    def inbox(self, after: int, count: int, size_max: int) -> list[InboxRow]:
        """The oldest messages that wait for the application, with numbers above `after`: at least one if there is
        any, then no more than `count` and `size_max` bytes."""
        found: list[InboxRow] = []
        with self._translated(), _Decoding(self._name):
            rows = self._db.execute(_SQL["inbox"], (after, count))
            for number, size, header, plaintext in rows:
                size_max -= size
                if found and size_max < 0:
                    break
                found.append(InboxRow(number, _header(header), plaintext))
            rows.close()
        return found

    def notices(self, after: int, count: int) -> list[NoticeRow]:
        """What the application is to be told, with numbers above `after`."""
        with self._translated(), _Decoding(self._name):
            return [
                NoticeRow(number, message_id, None if raw is None else receipt_format.decode(raw), reason)
                for number, message_id, raw, reason in self._db.execute(_SQL["notices"], (after, count))
            ]

    # -- writing -------------------------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        """All of the batch, or nothing. Raises DiskFull, StoreError."""
        with self.transaction() as db:
            many = db.executemany
            self._add(db, [*batch.added.values(), *batch.sealed.values()])
            many(_SQL["add_unsealed"], [_unsealed(row) for row in batch.unsealed.values()])
            many(_SQL["remove_unsealed"], [(one,) for one in (*batch.sealed, *batch.unsealed_over)])
            many(_SQL["set_copies"], [(copies, UUID(one).bytes) for one, copies in batch.budgets.items()])
            removed = [(UUID(one).bytes,) for one in batch.removed]
            many(_SQL["remove_ciphertext"], removed)
            many(_SQL["remove"], removed)
            _save_seen(db, batch)
            many(_SQL["arrive"], [_inbox_row(row) for row in batch.arrived])
            many(_SQL["hand_over"], [(number,) for number in batch.handed_over])
            many(_SQL["notify"], [(*row[:2], row.receipt and row.receipt.encoded, row.reason) for row in batch.notices])
            many(_SQL["tell"], [(number,) for number in batch.told])
            many(_SQL["add_report"], [(one.number, _encode(one.event)) for one in batch.reports.values()])
            many(_SQL["remove_report"], [(number,) for number in batch.reports_over])
            if batch.at_platform:
                rows = batch.at_platform.items()
                many(_SQL["remove_at_platform"], [(sequence,) for sequence, row in rows if row is None])
                many(_SQL["save_at_platform"], [row for _, row in rows if row is not None])
            many(_SQL["forget_receipt"], [(UUID(one).bytes,) for one in batch.receipts_forgotten])
            many(_SQL["add_receipt"], [(UUID(one.message_id).bytes, one.encoded) for one in batch.receipts])
            if batch.receipts_forgotten:  # those too that a kill or a lower limit has left
                db.execute(_SQL["bound_receipts"], (self._receipts,))
            if batch.certificates:
                many(_SQL["add_certificate"], [(one.key.public_bytes_raw(), one.der) for one in batch.certificates])
                db.execute(_SQL["bound_certificates"], (self._certificates,))
            if batch.revocations is not None:
                db.execute(_SQL["save_revocations"], (batch.revocations,))
            if batch.meta is not None:
                db.execute(_SQL["save_node"], batch.meta)
            if self._log is not None and (batch.steps or batch.accepted_steps):
                self._log.add(db, [*batch.accepted_steps, *batch.steps])

    def _seen(self, number: int, source: bytes, low_water: bytes, used_s: float) -> SeenState:
        above = tuple(_number(raw) for (raw,) in self._db.execute(_SQL["taken"], (number,)))
        return SeenState(_decode(source, type=Source), _number(low_water), above, used_s)

    def _known_receipts(self) -> KnownReceipts:
        """What is kept of them in memory."""
        found = KnownReceipts(self._receipts, MeshLimits().peers)
        for (raw,) in self._db.execute(_SQL["receipts"]):
            found.recovered(receipt_format.decode(raw))
        return found

    def _add(self, db: sqlite3.Connection, rows: Iterable[BundleRow]) -> None:
        bundles, ciphertexts, number = [], [], self._number
        for bundle, copies, since in rows:
            number += 1
            header, ciphertext = _raw_header(bundle.header), bundle.ciphertext
            bundles.append(
                (
                    *(number, UUID(bundle.message_id).bytes, header, bundle.signature, bundle.hops, bundle.age_s),
                    *(copies, since, bundle.size),
                )
            )
            ciphertexts.append((ciphertext, number))
        db.executemany(_SQL["add"], bundles)
        db.executemany(_SQL["add_ciphertext"], ciphertexts)
        self._number = number

    # -- opening -------------------------------------------------------------------------------------------------------

    def _make(self, *, is_new: bool) -> None:
        if is_new:
            create_tables(self._db, _SQL["schema"])
            self._db.execute(_SQL["save_node"], Meta(self._owner, self._incarnation, 0, 0.0, 0.0))
            self._db.execute(f"PRAGMA user_version = {_FORMAT}")
        if self._log is not None:
            self._log.prepare(self._db)

    def _open(self) -> None:
        super()._open()
        self._check_format(_FORMAT, "directory")
        row = self._db.execute(_SQL["node"]).fetchone()
        if row is None:
            raise StoreDamaged(f"{self._path} is damaged: its owner is missing; move the file away to start anew")
        if row[0] != self._owner:
            raise StoreForeign(
                f"{self._path} is the mesh's store of the agent {row[0]!r}, not of {self._owner!r}: "
                "each agent needs a directory of its own"
            )


class _Decoding:
    """Malformed values in the file are damage."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, FormatError | KeyError | ValueError):
            raise StoreDamaged(f"{self._name} is damaged: {error}; move it away to start anew") from error


def _raw_header(header: Header) -> bytes:
    return _encode(header_row(header))


def _header(raw: bytes) -> Header:
    originator, incarnation, sequence, destination, kind, *rest = _header_decoder.decode(raw)
    return Header(sys.intern(originator), incarnation, sequence, sys.intern(destination), _KINDS[kind], *rest)


def _stored(row: tuple[Any, ...], records: HeldOnDisk) -> DiskHeld:
    raw_id, header, *rest = row
    return records.record(raw_id, _header_decoder.decode(header), *rest)


def _unsealed(row: UnsealedRow) -> tuple[Any, ...]:
    return row.header.sequence, row.since, row.size, _raw_header(row.header), row.plaintext


def _inbox_row(row: InboxRow) -> tuple[Any, ...]:
    return row.number, len(row.plaintext), _raw_header(row.header), row.plaintext


def _save_seen(db: sqlite3.Connection, batch: Batch) -> None:
    """What was taken, without what is below the marks. A sequence is one row, so that a commit costs what is new."""
    forgotten = [(_encode(source),) for source in batch.forgotten]
    db.executemany(_SQL["forget_taken"], forgotten)
    db.executemany(_SQL["forget_seen"], forgotten)
    marks = [(_encode(one.source), _raw_number(one.low_water), one.used_s) for one in batch.seen]
    db.executemany(_SQL["save_seen"], marks)
    db.executemany(_SQL["remove_taken_below"], [(source, low_water) for source, low_water, _ in marks])
    db.executemany(_SQL["add_taken"], [(_encode(source), _raw_number(one)) for source, one in batch.sequences])


def _raw_number(number: int) -> bytes:
    """In the order of the numbers, which may be above what SQLite has integers for."""
    return number.to_bytes(8, "big")


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _report(number: int, raw: bytes) -> PendingReport:
    return PendingReport(number, _decode(raw, type=MessagePresenceEvent))
