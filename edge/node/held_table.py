"""The records of what a node holds, by message id, in about 20 bytes each beside the records (M2, M19).

They stand in the order in which they came; one that has left leaves a gap, and gaps are closed when they are as many as
what is left. It has what :class:`edge.mesh.carrier.Carrier` needs of a dictionary.
"""

from collections.abc import Iterator
from typing import Final

from bundles.id_table import IdTable, raw_id
from edge.node.held_on_disk import DiskHeld

_GAPS: Final = 1_000


class HeldTable:
    """Ids are in canonical text."""

    def __init__(self) -> None:
        self._records: list[DiskHeld | None] = []
        self._table = IdTable(self._id_at)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, message_id: str) -> bool:
        return self._find(message_id) is not None

    def __iter__(self) -> Iterator[str]:
        return (held.message_id for held in self._records if held is not None)

    def __getitem__(self, message_id: str) -> DiskHeld:
        found = self.get(message_id)
        if found is None:
            raise KeyError(message_id)
        return found

    def __setitem__(self, message_id: str, held: DiskHeld) -> None:
        """Holds one that is new."""
        self._records.append(held)
        self._count += 1
        if not self._table.add(held.raw_id, len(self._records) - 1):
            self._close_gaps()

    def get(self, message_id: str) -> DiskHeld | None:
        """The record of a message; None if it is not held."""
        at = self._find(message_id)
        return None if at is None else self._records[at]

    def pop(self, message_id: str, _: None = None) -> DiskHeld | None:
        """The same, which is not held any more."""
        at = self._find(message_id)
        if at is None:
            return None
        held, self._records[at] = self._records[at], None
        self._count -= 1
        if len(self._records) - self._count > max(_GAPS, self._count):
            self._close_gaps()
        return held

    def values(self) -> Iterator[DiskHeld]:
        """All of them, oldest first."""
        return (held for held in self._records if held is not None)

    def _find(self, message_id: str) -> int | None:
        try:
            return self._table.find(raw_id(message_id))
        except ValueError:
            return None

    def _close_gaps(self) -> None:
        self._records = [held for held in self._records if held is not None]
        self._table.rebuild(range(len(self._records)))

    def _id_at(self, at: int) -> bytes:
        held = self._records[at]
        return b"" if held is None else held.raw_id
