"""Which numbers were given up, so that a late copy is known as such, and not taken for a duplicate (S3)."""

from collections.abc import Iterable

from feeds.gaps import Gap, Gaps


class LostNumbers:
    """At most `ranges_max` ranges; the lowest are forgotten first. Below the `horizon` nothing is known."""

    __slots__ = ("_max", "_ranges", "horizon")

    def __init__(self, ranges_max: int, ranges: Iterable[tuple[int, int]] = (), horizon: int = 0) -> None:
        self._max = ranges_max
        self._ranges = Gaps(Gap(first, last) for first, last in ranges)
        self.horizon = horizon

    def add(self, first: int, last: int) -> None:
        """Remembers a range above all others."""
        self._ranges.append(Gap(first, last))
        self._forget()

    def remove(self, number: int) -> None:
        """Forgets a number, as it was delivered late."""
        self._ranges.take_out(number)
        self._forget()

    def __contains__(self, number: int) -> bool:
        return self._ranges.holding(number) is not None

    def export(self) -> tuple[tuple[int, int], ...]:
        """The ranges."""
        return tuple((one.first, one.last) for one in self._ranges)

    def _forget(self) -> None:
        while len(self._ranges) > self._max:
            last = self._ranges.front.last
            self._ranges.take_through(last)
            self.horizon = last + 1
