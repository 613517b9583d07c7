"""The last value of each key on a shard's partition of `sessions`, as a recovery needs them. Pure.

The topic is compacted, so this is all that its history says, but for records that a fence has made void. A standby
keeps it in memory, and its recovery reads on from there.
"""

from collections.abc import Iterable

from gateway.record import Record
from gateway.shard.fenced_partition import FencedPartition

_OVERHEAD = 300
"""Bytes that a record takes in memory besides key and value, roughly."""


class SessionValues:
    """Of one shard. `fenced` says what counts. `position`: the offset of the next record to read; `size`: bytes of
    memory, roughly."""

    def __init__(self, fenced: FencedPartition) -> None:
        self._fenced = fenced
        self._records: dict[bytes, Record] = {}
        self.position = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._records)

    def go_on(self, fenced: FencedPartition) -> None:
        """Another reader, which has read nothing yet, says what counts from now on."""
        fenced.restore(*self._fenced.state)
        self._fenced = fenced

    def take(self, record: Record) -> None:
        """The next record of the partition; without a value it ends its key."""
        self.position = record.offset() + 1
        if self._fenced.take(record) != "counts":
            return
        key = record.key() or b""
        before = self._records.get(key)
        if before is not None:
            self.size -= _size(before)
        if record.value() is None:
            self._records.pop(key, None)
        else:
            self._records[key] = record
            self.size += _size(record)

    def find(self, key: bytes) -> Record | None:
        """The record that counts for a key."""
        return self._records.get(key)

    def records(self) -> Iterable[Record]:
        """In the order in which their keys first came."""
        return self._records.values()


def _size(record: Record) -> int:
    return _OVERHEAD + len(record.key() or b"") + len(record.value() or b"")
