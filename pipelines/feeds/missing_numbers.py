"""Which numbers of a source stream neither slot has brought, kept up to date batch by batch, for metrics.

The views over `feed_copies` are exact; this begins anew with each start of the ledger, and remembers a bounded number
of ranges.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Range = tuple[int, int]
"""The first and the last number."""


class MissingNumbers:
    """Numbers of one source stream from the first batch on. `reached` is how far each slot has brought it, or said that
    it has passed."""

    def __init__(self, ranges_max: int) -> None:
        self.reached: dict[str, int] = {}
        self._max = ranges_max
        self._ranges: list[Range] = []
        self._highest: int | None = None

    def take(self, sequences: Numbers) -> None:
        """Numbers of a batch, of both slots, in any order."""
        if not len(sequences):
            return
        numbers = np.unique(sequences)
        ends = np.flatnonzero(np.diff(numbers) > 1)
        firsts = numbers[np.concatenate(([0], ends + 1))].tolist()
        lasts = numbers[np.concatenate((ends, [len(numbers) - 1]))].tolist()
        if self._highest is None:
            self._highest = firsts[0] - 1
        runs = list(zip(firsts, lasts, strict=True))
        late = bisect_right(firsts, self._highest)
        if late:
            self._ranges = _without(self._ranges, runs[:late])[-self._max :]
            self._highest = max(self._highest, lasts[late - 1])
        for first, last in runs[late:]:
            self._extend(first - 1)
            self._highest = last

    def passed(self, slot: str, number: int) -> None:
        """A slot brings nothing more up to `number`."""
        self.reached[slot] = max(number, self.reached.get(slot, number))
        if self._highest is not None:
            self._extend(number)

    def lost(self, slots: Sequence[str]) -> int:
        """How many numbers are missing that each of these slots has passed."""
        end = min((self.reached.get(slot, -1) for slot in slots), default=-1)
        return sum(min(last, end) - first + 1 for first, last in self._ranges if first <= end)

    def behind(self, slot: str) -> int:
        """By how many numbers a slot is behind the highest known; 0 if it has never brought the stream."""
        if self._highest is None or slot not in self.reached:
            return 0
        return max(0, self._highest - self.reached[slot])

    def _extend(self, number: int) -> None:
        """What is beyond the highest known number, up to `number`, is missing."""
        assert self._highest is not None
        if number > self._highest:
            self._ranges.append((self._highest + 1, number))
            self._highest = number
            del self._ranges[: -self._max]


def _without(ranges: Sequence[Range], runs: Sequence[Range]) -> list[Range]:
    """What of the `ranges` is in none of the `runs`; both ascending and apart. One pass over both: there may be as many
    runs as a batch has numbers."""
    left, nth = list[Range](), 0
    for begin, end in ranges:
        while nth < len(runs) and runs[nth][0] <= end:
            first, last = runs[nth]
            if first > begin:
                left.append((begin, first - 1))
            begin = max(begin, last + 1)
            if last > end:  # it may be in the next range too
                break
            nth += 1
        if begin <= end:
            left.append((begin, end))
    return left
