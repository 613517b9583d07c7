"""Which administrative messages were taken: (N, k) is the k-th after message N, and is taken once (S4).

They have no numbers of their own, so a missing one is not noticed, and what was taken has to be remembered singly.
"""

from collections.abc import Iterable
from zlib import crc32

from feeds.message import FeedMessage


class AdministrativeParts:
    """At most `count_max`; of those whose turn has passed, the oldest half is forgotten when they are more. Below the
    `horizon` nothing is known."""

    __slots__ = ("_max", "_taken", "horizon")

    def __init__(self, count_max: int, taken: Iterable[tuple[int, int, int]] = (), horizon: int = 0) -> None:
        self._max = count_max
        self._taken = {(sequence, part): digest for sequence, part, digest in taken}
        self.horizon = horizon

    def __contains__(self, message: FeedMessage) -> bool:
        return (message.sequence, message.part) in self._taken

    def differs(self, message: FeedMessage) -> bool:
        """Whether a further copy of one that was taken has another payload."""
        return self._taken[message.sequence, message.part] != crc32(message.payload)

    def add(self, message: FeedMessage, next_number: int) -> bool:
        """Remembers one; False if there is no space, as all that are remembered still wait for their turn, which is
        below `next_number`."""
        if len(self._taken) >= self._max and not self._forget(next_number):
            return False
        self._taken[message.sequence, message.part] = crc32(message.payload)
        return True

    def export(self) -> tuple[tuple[int, int, int], ...]:
        """What :meth:`__init__` takes as `taken`."""
        return tuple((sequence, part, digest) for (sequence, part), digest in self._taken.items())

    def _forget(self, next_number: int) -> bool:
        past = sorted(key for key in self._taken if key[0] < next_number)
        if not past:
            return False
        self.horizon = max(self.horizon, past[(len(past) - 1) // 2][0] + 1)
        self._taken = {key: digest for key, digest in self._taken.items() if key[0] >= self.horizon}
        return True
