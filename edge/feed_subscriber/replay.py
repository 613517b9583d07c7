"""From which offset each partition has to be read again so that nothing uncommitted is missing (S3). Pure.

Per batch of a partition it is remembered up to which place it reaches in each source stream. A batch is done when all
of these are committed, and all items that it led to at once (late ones have lower numbers). The offset is that of the
oldest batch that is not done. So the memory depends on the number of batches, not on that of messages.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from edge.feed_subscriber.stream_view import Place


class ReadPosition(NamedTuple):
    """Where to read on: `offset`; `append_ms`: when the broker appended the record before it, ms since the epoch, 0 if
    that is not known."""

    offset: int
    append_ms: int


class _Batch(NamedTuple):
    begin: ReadPosition
    places: Mapping[str, Place]
    ordinal: int


IsCommitted = Callable[[str, Place], bool]


class ReplayPosition:
    """Of one partition, which is read from `position` on."""

    __slots__ = ("_batches", "read")

    def __init__(self, position: ReadPosition) -> None:
        self.read = position
        """Up to where it was read."""
        self._batches: deque[_Batch] = deque()

    def add(self, places: Mapping[str, Place], ordinal: int, end: ReadPosition) -> None:
        """A batch was read, up to `end`; `ordinal` of the last item so far."""
        self._batches.append(_Batch(self.read, places, ordinal))
        self.read = end

    def move(self, position: ReadPosition) -> None:
        """It is read on from another position, after it was not read for a while."""
        self.read = position
        if self._batches and position.offset < self._batches[0].begin.offset:
            self._batches = deque(one._replace(begin=position) for one in self._batches)

    def release(self, committed: int, is_committed: IsCommitted) -> None:
        """Items up to ordinal `committed` are committed."""
        while self._batches:
            batch = self._batches[0]
            if batch.ordinal > committed:
                return
            if not all(is_committed(stream, place) for stream, place in batch.places.items()):
                return
            self._batches.popleft()

    @property
    def is_done(self) -> bool:
        """Whether nothing has to be read again."""
        return not self._batches

    @property
    def again(self) -> ReadPosition:
        """Where to read on after a restart."""
        return self._batches[0].begin if self._batches else self.read
