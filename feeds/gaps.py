"""Ranges of missing numbers of one source stream, in order and disjoint."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace


@dataclass(slots=True)
class Gap:
    """`first` to `last` are missing, both included. Times are the caller's, in milliseconds: `since_ms` when a message
    beyond came, `suspected_ms` when it was declared a gap, `settled_ms` when no feed was expected to fill it any more.
    `searched` has bit 1 << f if the log of feed f was searched."""

    first: int
    last: int
    since_ms: float = 0.0
    suspected_ms: float | None = None
    settled_ms: float | None = None
    searched: int = 0


class Gaps:
    """A list of gaps, of which numbers are taken out as they come."""

    __slots__ = ("_all",)

    def __init__(self, gaps: Iterable[Gap] = ()) -> None:
        self._all = list(gaps)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Gap]:
        return iter(self._all)

    @property
    def front(self) -> Gap:
        """The lowest; raises IndexError if there is none."""
        return self._all[0]

    def append(self, gap: Gap) -> None:
        """Adds a gap beyond all others."""
        self._all.append(gap)

    def from_number(self, number: int) -> Iterator[Gap]:
        """The gaps that end at `number` or beyond."""
        for at in range(self._at(number), len(self._all)):
            yield self._all[at]

    def holding(self, number: int) -> Gap | None:
        """The gap that `number` is in."""
        at = self._at(number)
        return self._all[at] if at < len(self._all) and self._all[at].first <= number else None

    def take_out(self, number: int) -> Gap | None:
        """Closes the gap that `number` is in, or shortens or splits it; the gap as it was, None if it is in none."""
        at = self._at(number)
        if at == len(self._all) or self._all[at].first > number:
            return None
        gap = self._all[at]
        parts = replace(gap, last=number - 1), replace(gap, first=number + 1)
        self._all[at : at + 1] = [part for part in parts if part.first <= part.last]
        return gap

    def take_through(self, number: int) -> Gap | None:
        """Takes out what of the lowest gap is not beyond `number`; None if nothing is."""
        if not self._all or self._all[0].first > number:
            return None
        gap = self._all[0]
        if gap.last <= number:
            return self._all.pop(0)
        self._all[0] = replace(gap, first=number + 1)
        return replace(gap, last=number)

    def _at(self, number: int) -> int:
        return bisect_left(self._all, number, key=_last)


def _last(gap: Gap) -> int:
    return gap.last
