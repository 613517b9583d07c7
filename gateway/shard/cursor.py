"""Up to where a session has settled its messages, in a size that does not grow with their number (G8).

A session takes messages in the order in which they were offered. Whatever brings them again after a crash has an order
of its own that agrees with it: instructions of one partition of `ingress` their positions on `egress`, direct
deliveries of one partition their offsets, rows of the spool their numbers. So one number each is enough: what is at or
below it was taken, and is settled unless the session says otherwise.
"""

from gateway.shard.messages import Entry
from schemas.session_log import SettledRecord


class SettledCursor:
    """The highest settled place of each kind."""

    __slots__ = ("_own", "_routed", "_row")

    def __init__(self, record: SettledRecord | None = None) -> None:
        self._routed: dict[int, int] = {} if record is None else dict(record.routed)
        self._own: dict[int, int] = {} if record is None else dict(record.own)
        self._row = 0 if record is None else record.row

    def note(self, entry: Entry) -> None:
        """An entry is settled."""
        held = entry.held
        partition = held.message.partition
        if entry.row is not None:
            self._row = max(self._row, entry.row)
        if entry.is_from_spool:
            return
        if held.position >= 0:
            self._routed[partition] = max(self._routed.get(partition, -1), held.position)
        elif partition >= 0:
            self._own[partition] = max(self._own.get(partition, -1), held.message.offset)

    def covers(self, entry: Entry) -> bool:
        """Whether an entry is at or below the cursor, by any way on which it may come."""
        held = entry.held
        partition = held.message.partition
        if entry.row is not None and self.covers_row(entry.row):
            return True
        if entry.is_from_spool:
            return False
        if held.position >= 0:
            return held.position <= self._routed.get(partition, -1)
        return held.message.offset <= self._own.get(partition, -1)

    def covers_row(self, row: int) -> bool:
        return row <= self._row

    def record(self) -> SettledRecord:
        return SettledRecord(dict(self._routed), dict(self._own), self._row)
