"""Promises: a home acts on what it has written only once it has read that back (G7, Q1, Q7). Pure.

What a home has written may stand behind the fence of the next owner, and then it does not count. Kafka's
acknowledgement does not tell: it says only where the record stands. So whatever a home promises to others (CONNACK of a
stored session, SUBACK, PUBREC, PUBCOMP, PUBLISH and PUBREL at QoS 2, a due will, an expiry, a final outcome) waits
until the home's own reader has passed the record and has met no fence of a higher epoch before it.

PUBREC promises that a message on `ingress` counts. It waits for a barrier: any record on the shard's partition of
`sessions` that was written after Kafka had stored the message. :mod:`gateway.cluster.fencing` says why that is enough.
One barrier serves all promises that wait when it is written.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadBack(Generic[T]):
    """The promises of one epoch on one partition, in the order in which their records were written."""

    def __init__(self, epoch: int, read_to: int = 0) -> None:
        """`read_to`: the offset of the next record that the home will read."""
        self._epoch = epoch
        self._read_to = read_to
        self._waiting: deque[tuple[int, T]] = deque()
        self._is_over = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether a fence of a higher epoch was met: nothing that this epoch still promises will hold."""
        return self._is_over

    def stored(self, offset: int, promise: T) -> list[T]:
        """Kafka has stored a record at this offset. Returns the promises that hold now, in order."""
        if not self._is_over:
            self._waiting.append((offset, promise))
        return self._due()

    def read(self, offset: int) -> list[T]:
        """The home's reader has taken this record, of whoever; it was no higher fence. Returns what holds now."""
        self._read_to = max(self._read_to, offset + 1)
        return self._due()

    def fence(self, offset: int, epoch: int) -> list[T]:
        """The home's reader has met a fence. Returns what holds still: records that stand before it."""
        self._read_to = max(self._read_to, offset)
        held = self._due()
        if epoch > self._epoch:
            self._is_over = True
            self._waiting.clear()
        else:
            self._read_to = offset + 1
        return held + self._due()

    def _due(self) -> list[T]:
        found: list[T] = []
        while self._waiting and self._holds(self._waiting[0][0]):
            found.append(self._waiting.popleft()[1])
        return found

    def _holds(self, offset: int) -> bool:
        return offset < self._read_to


class Barriers(Generic[T]):
    """Gathers promises that wait for a barrier: the next one serves all that came before it was written."""

    def __init__(self) -> None:
        self._gathered: list[T] = []

    def add(self, promise: T) -> bool:
        """True if a barrier is to be written now, or soon; False if one is due already."""
        self._gathered.append(promise)
        return len(self._gathered) == 1

    def take(self) -> list[T]:
        """What the barrier that is being written now serves."""
        found, self._gathered = self._gathered, []
        return found

    def __len__(self) -> int:
        return len(self._gathered)
