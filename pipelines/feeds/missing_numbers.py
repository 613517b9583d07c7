"""Which numbers of a source stream neither slot has brought, kept up to date batch by batch, for metrics.

The views over `feed_copies` are exact; this begins anew with each start of the ledger, and remembers a bounded number
of ranges.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class MissingNumbers:
    """Numbers of one source stream from the first batch on. `reached` is how far each slot has brought it, or said that
    it has passed."""

    def __init__(self, ranges_max: int) -> None:
        self.reached: dict[str, int] = {}
        self._max = ranges_max
        self._ranges: list[tuple[int, int]] = []
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
        for first, last in zip(firsts, lasts, strict=True):
            if first <= self._highest:
                self._ranges = [part for one in self._ranges for part in _without(one, first, last)]
            self._extend(first - 1)
            self._highest = max(self._highest, last)

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


def _without(one: tuple[int, int], first: int, last: int) -> list[tuple[int, int]]:
    """What of a range is not from `first` to `last`."""
    parts = (one[0], min(one[1], first - 1)), (max(one[0], last + 1), one[1])
    return [one] if last < one[0] or first > one[1] else [part for part in parts if part[0] <= part[1]]
