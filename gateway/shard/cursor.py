"""Up to where a session has settled its messages, in a size that does not grow with their number (G8).

A session takes messages in the order in which they were offered. Whatever brings them again after a crash has an order
of its own that agrees with it: instructions of one partition of `ingress` their positions on `egress`, direct
deliveries of one partition their offsets, rows of the spool their numbers, and messages of redundant feeds the numbers
of their releases. So one number each is enough: what is at or below it was taken, and is settled unless the session
says otherwise.
"""

from typing import Final

from gateway.shard.messages import Delivery
from schemas.session_log import SettledRecord

MERGED: Final = -1
"""In place of a partition in `routed`: the number of the last release (:class:`gateway.shard.messages.Release`)."""


class SettledCursor:
    """The highest settled place of each kind."""

    __slots__ = ("_own", "_routed", "_row")

    def __init__(self, record: SettledRecord | None = None) -> None:
        self._routed: dict[int, int] = {} if record is None else dict(record.routed)
        self._own: dict[int, int] = {} if record is None else dict(record.own)
        self._row = 0 if record is None else record.row

    def note(self, delivery: Delivery) -> None:
        """A delivery is settled."""
        pending = delivery.pending
        partition = pending.message.partition
        if delivery.row is not None:
            self._row = max(self._row, delivery.row)
        if delivery.is_from_spool:
            return
        if pending.release is not None:
            self._routed[MERGED] = max(self._routed.get(MERGED, 0), pending.release.number)
        elif pending.position >= 0:
            self._routed[partition] = max(self._routed.get(partition, -1), pending.position)
        elif partition >= 0:
            self._own[partition] = max(self._own.get(partition, -1), pending.message.offset)

    def covers(self, delivery: Delivery) -> bool:
        """Whether a delivery is at or below the cursor, by any way on which it may come."""
        pending = delivery.pending
        partition = pending.message.partition
        if delivery.row is not None and self.covers_row(delivery.row):
            return True
        if delivery.is_from_spool:
            return False
        if pending.release is not None:
            return pending.release.number <= self._routed.get(MERGED, 0)
        if pending.position >= 0:
            return pending.position <= self._routed.get(partition, -1)
        return pending.message.offset <= self._own.get(partition, -1)

    def covers_row(self, row: int) -> bool:
        return row <= self._row

    def record(self) -> SettledRecord:
        return SettledRecord(dict(self._routed), dict(self._own), self._row)
