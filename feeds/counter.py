"""Counters of source formats that start over (S2); :mod:`edge.feeds.unwrap` makes numbers without end of them."""

from typing import Final, NamedTuple, Self

from feeds.errors import FeedSettingsError

STREAMS_MAX: Final = 10_000
"""How many source streams of one source are told apart, unless a setting says otherwise."""


class Counter(NamedTuple):
    """A counter that goes from `first` to `last`, then to `first` again. Both ends are included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many values it has."""
        return self.last - self.first + 1

    def checked(self) -> Self:
        """Itself. Raises FeedSettingsError if it cannot be a counter."""
        if self.first < 0 or self.size < 2:
            raise FeedSettingsError(
                f"a counter begins with 0 or more and has two values or more, unlike {self.first} to {self.last}"
            )
        return self


MINISEED: Final = Counter(1, 999_999)
"""Six digits; common writers go from 999999 to 000001."""
UINT32: Final = Counter(0, 2**32 - 1)
