"""Reading a shard's partition of `sessions` or `spool` by its fences: what counts (G6, Q7). Pure.

Whoever reads these topics takes what :class:`FencedPartition` lets through, whether gateways share shards or not: a
site may have shared them before.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from gateway.cluster.fencing import PartitionFences
from gateway.errors import BusError, Outranked, ShardLost
from gateway.record import Record
from gateway.shard.spool_tables import FenceState
from schemas.errors import RecordError
from schemas.fences import FENCE_PREFIX, decode_fence, epoch_of
from schemas.leases import Claimant

Verdict = Literal["counts", "void", "fence", "removal", "malformed"]


class FencedPartition:
    """A shard's partition of `sessions` or `spool`, read in order. `fences` says what counts so far.

    For the home of the shard in `epoch`, which `claimant` has fenced; for whoever only reads, epoch 0. `malformed` gets
    fences that are not valid, with what is wrong; they are left out.
    """

    def __init__(
        self,
        shard: int,
        epoch: int = 0,
        claimant: Claimant | None = None,
        malformed: Callable[[Record, str], None] = lambda _record, _reason: None,
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        self.fences = PartitionFences()
        self._claimant = claimant
        self._malformed = malformed
        self._highest_by: Claimant | None = None
        self._is_outranked = False

    def restore(self, fences: Iterable[int], unmended: Iterable[bytes]) -> None:
        """Goes on where a reader has stopped that had seen these fences, and void records under these keys."""
        for epoch in sorted(fences):
            self.fences.read_fence(epoch)
        for key in unmended:
            self.fences.read(key, -1)

    @property
    def state(self) -> FenceState:
        """For `restore`."""
        return FenceState(self.fences.fences, self.fences.unmended)

    def wrote(self, key: bytes) -> None:
        """The home has written this key, and nothing of others stands between its records."""
        self.fences.read(key, self.epoch)
        if key.startswith(FENCE_PREFIX):
            self.fences.fence_removed(decode_fence(key, None)[0])

    @property
    def is_superseded(self) -> bool:
        """Whether a higher fence than the home's was read."""
        return self.fences.epoch > self.epoch

    def take(self, record: Record) -> Verdict:
        """The next record: only what "counts" is to be applied. A "removal" is the tombstone of a fence."""
        key, fences = record.key() or b"", self.fences
        if key.startswith(FENCE_PREFIX):
            return self._take_fence(key, record)
        if not fences.epoch:  # nothing can be void, and most sites have no fences
            return "counts"
        return "counts" if fences.read(key, epoch_of(record.headers())) else "void"

    def _take_fence(self, key: bytes, record: Record) -> Verdict:
        try:
            epoch, writer = decode_fence(key, record.value())
        except RecordError as error:
            self._malformed(record, str(error))
            return "malformed"
        if writer is None:
            if not self.fences.read(key, epoch_of(record.headers())):
                return "void"
            self.fences.fence_removed(epoch)
            return "removal"
        before, by = self.fences.epoch, self._highest_by
        if self.fences.read_fence(epoch):
            self._highest_by = writer
        elif epoch == self.epoch and writer == self._claimant and (before > epoch or by != writer):
            self._is_outranked = True  # one that it has written twice itself does no harm
        return "fence"

    def check(self) -> None:
        """For a home that has read up to the end, past its own fence. Raises Outranked if that has no effect, ShardLost
        if a higher one stands behind it, BusError if it is not there."""
        if self._is_outranked:
            raise Outranked(self.shard, self.epoch, self.fences.epoch)
        if self.is_superseded:
            raise ShardLost(self.shard)
        if self.fences.epoch < self.epoch:
            raise BusError(f"the fence of shard {self.shard} in epoch {self.epoch} is not to be found")
