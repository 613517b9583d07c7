"""The receipts that a node remembers, on disk: a contact reads some when it sends them (M2, M19).

The journal's batches write them, with what else changes in the same commit, and remove those that are forgotten.
"""

from collections.abc import Sequence

from edge.node.journal import Journal


class DiskReceipts:
    """An :class:`edge.mesh.known_receipts.EncodedReceipts`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def put(self, message_id: str, encoded: bytes) -> None:
        """Whoever has taken the receipt notes it in the journal."""

    def get(self, message_ids: Sequence[str]) -> Sequence[bytes]:
        """Waits for the disk. Raises StoreError."""
        wanted = set(message_ids)
        found = {one.message_id: one.encoded for one in self._journal.changed_receipts() if one.message_id in wanted}
        if left := [one for one in message_ids if one not in found]:
            return [*found.values(), *self._journal.read_now(lambda store: store.receipts(left))]
        return list(found.values())

    def forget(self, message_id: str) -> None:
        """Its row goes with the next commit."""
        self._journal.change(urgent=False).receipts_forgotten[message_id] = None
