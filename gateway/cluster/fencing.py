"""Fences: the order of the log, and nothing else, says whose records count (G6, G7, Q6-Q8). Pure.

An owner that has lost its shard may not know it: it was stopped, or cut off, or its Kafka client still sends what it
had queued. So the next owner, before it serves, writes a **fence** to each partition that a home of this shard writes.
Readers ignore records of a lower epoch behind a fence. All readers of a partition see the same order, so all of them
ignore the same records.

Order of the fences. A new owner writes its fence to `sessions`, then that to `spool`, **waits until Kafka has stored
them**, and only then writes the one to each partition of `ingress`. A publish is acknowledged at QoS 2 once a barrier
on `sessions`, written after Kafka had stored the message, is read back (:mod:`gateway.cluster.read_back`). If the
message stands behind the fence on `ingress`, the fence on `sessions` was stored before the barrier was written, so the
barrier stands behind it and nothing is acknowledged. In the other order a message could be dropped and acknowledged.

A fence says who has written it (name and boot), so that an owner knows its own. If one of the same or a higher epoch
stands before it, the epoch is not the owner's alone: it reads on to its own, and claims again above all of them.

**Fences of earlier epochs stay** (the key of a fence has its epoch) until everything before the later one is mended:
otherwise compaction could remove the fence in front of a record that it had made void.

**Mending.** Readers ignore a void record, but compaction does not: it keeps the last record of a key, and would remove
the one that counts. So the owner writes again what the void record has overwritten. Until the rewrite is read, the key
is unmended; a standby keeps the same set, so it can mend as soon as it is the owner. `min.compaction.lag.ms` of these
topics is the time that there is for it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class PartitionFences:
    """The reader's side of one partition of a shard's own: `sessions`, `spool`, `retained`. Records come in order."""

    def __init__(self) -> None:
        self._epoch = 0
        self._fences: set[int] = set()
        self._unmended: dict[bytes, None] = {}

    @property
    def epoch(self) -> int:
        """The highest fence so far."""
        return self._epoch

    @property
    def fences(self) -> list[int]:
        """Epochs of the fences that stand there, the lowest first; also of those without effect."""
        return sorted(self._fences)

    @property
    def unmended(self) -> list[bytes]:
        """Keys whose last record is void: the owner is to write them again, or their tombstones, in its own epoch."""
        return list(self._unmended)

    def read_fence(self, epoch: int) -> bool:
        """A fence; False if one of the same or a higher epoch stands before it, so that it has no effect. A new owner
        whose own fence has none must claim again: it cannot be told from whoever wrote the earlier one."""
        self._fences.add(epoch)
        if epoch <= self._epoch:
            return False
        self._epoch = epoch
        return True

    def read(self, key: bytes, epoch: int) -> bool:
        """A record, written in `epoch`, with this key, tombstones included: whether it counts."""
        if self._is_void(epoch):
            self._unmended[key] = None
            return False
        self._unmended.pop(key, None)
        return True

    def removable(self) -> list[int]:
        """Epochs of fences that the owner of the highest may remove by tombstones: none before all keys are mended."""
        return [] if self._unmended else sorted(epoch for epoch in self._fences if epoch < self._epoch)

    def fence_removed(self, epoch: int) -> None:
        """The tombstone of a fence was read."""
        self._fences.discard(epoch)

    def _is_void(self, epoch: int) -> bool:
        return epoch < self._epoch


class Fence(NamedTuple):
    """A fence on a partition of `ingress`: where it stands, and the epoch that it begins."""

    offset: int
    epoch: int


class SenderFences:
    """The reader's side of `ingress`, where each message has the shard of its sender, and the epoch in which the home
    of that shard has written it.

    Part of the reader's position: a reader that goes on from a position needs the fences that stand before it. The
    position may be far behind what has been read, and what stands between it and a fence must not be dropped. So each
    fence has its offset, and the answer for a message depends on where it stands, not on when it is read. Instructions
    have the offset of their message too, so it holds for `egress` as for `ingress`.
    """

    def __init__(self, seen: Mapping[int, Mapping[int, Iterable[Fence]]] | None = None) -> None:
        """`seen`: fences by shard, by partition of `ingress`, each in ascending order."""
        self._seen: dict[int, dict[int, list[Fence]]] = {
            partition: {shard: list(fences) for shard, fences in of_partition.items()}
            for partition, of_partition in (seen or {}).items()
        }

    def seen(self, positions: Mapping[int, int]) -> dict[int, dict[int, list[Fence]]]:
        """What is to be stored with these positions, by partition: of the fences before a position only the highest
        matter."""
        return {
            partition: {
                shard: [*[fence for fence in fences if fence.offset < positions.get(partition, 0)][-1:]]
                + [fence for fence in fences if fence.offset >= positions.get(partition, 0)]
                for shard, fences in of_partition.items()
            }
            for partition, of_partition in self._seen.items()
        }

    def read_fence(self, partition: int, offset: int, epochs: Iterable[tuple[int, int]]) -> None:
        """A fence message at `offset`: (shard, epoch) of each shard that it names. One that is not higher than an
        earlier one has no effect. They may be read in any order, and more than once: a reader has two ways."""
        of_partition = self._seen.setdefault(partition, {})
        for shard, epoch in epochs:
            fences = of_partition.setdefault(shard, [])
            at = bisect_left(fences, (offset,))
            if at and fences[at - 1].epoch >= epoch:
                continue
            end = at
            while end < len(fences) and fences[end].epoch <= epoch:
                end += 1
            fences[at:end] = [Fence(offset, epoch)]

    def forget(self, positions: Mapping[int, int]) -> None:
        """No message before these positions, by partition, will be asked about."""
        self._seen = self.seen(positions)

    def epoch_at(self, partition: int, offset: int, shard: int) -> int:
        """The highest fence of a sender's shard before `offset`, 0 for none."""
        of_partition = self._seen.get(partition)
        if not of_partition:
            return 0
        for fence in reversed(of_partition.get(shard, ())):
            if fence.offset < offset:
                return fence.epoch
        return 0

    def highest(self, shard: int) -> int:
        """The highest fence of a sender's shard on any partition, 0 for none."""
        found = (fence.epoch for of_partition in self._seen.values() for fence in of_partition.get(shard, ()))
        return max(found, default=0)

    def is_dropped(self, partition: int, offset: int, shard: int, epoch: int, qos: int, is_once: bool) -> bool:
        """Whether a home drops the message at this offset, and relinquishes it: at QoS 2, or one that must not come
        twice at any QoS (`is_once`: a will, or a message with a key), of a lower epoch behind the fence of its sender's
        shard. Its sender was not acknowledged and sends it again, so it would come twice. At QoS 0 it is dropped too:
        it would come behind later messages, and may be lost. At QoS 1 it passes: twice is allowed there, and the sender
        may have been acknowledged."""
        return (qos != 1 or is_once) and epoch < self.epoch_at(partition, offset, shard)
