"""How long a reader has been behind the end of a partition, in seconds (Q7). Pure: the time comes in.

Records are not looked at. Whenever the end of the partition is heard, the end and the time are noted. A reader that has
come to a noted end is no further behind than the next one. So the first end that it has not come to says since when it
is behind. Only this machine's clock is used. What the broker has and has not said yet does not count.

Ends that follow one another within a moment are noted as one, with the time of the first. If there are too many, each
two become one: then the answer may be too large by the distance of the two, and is never too small.
"""

from itertools import islice
from typing import Final

APART_S: Final = 0.1
MOST: Final = 64


class Lag:
    """Of one reader and one partition. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, float]] = []  # the end that was heard last of each, and the time of the first

    def heard(self, end: int, now: float) -> None:
        """The partition ends at this offset."""
        if self._ends and end <= self._ends[-1][0]:
            return
        if self._ends and now - self._ends[-1][1] < APART_S:
            self._ends[-1] = end, self._ends[-1][1]
            return
        if len(self._ends) == MOST:
            pairs = zip(islice(self._ends, 0, None, 2), islice(self._ends, 1, None, 2), strict=True)
            self._ends = [(later, at) for (_, at), (later, _) in pairs]
        self._ends.append((end, now))

    def seconds(self, position: int, now: float) -> float:
        """Since when the reader, which is at `position`, has known of a record that it has not read; 0 if of none."""
        read = next((n for n, (end, _) in enumerate(self._ends) if end > position), len(self._ends))
        del self._ends[:read]
        return max(0.0, now - self._ends[0][1]) if self._ends else 0.0
