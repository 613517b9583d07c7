"""The time by which share groups count how long something lasts (R6). Pure."""

from typing import Final

_MOST_S: Final = 10.0
"""So much a tick counts at most: they come every second."""


class GroupClock:
    """`now`: seconds since the home began, as of the last tick. A wall clock that is set forward counts as ten seconds,
    one that is set back as none."""

    def __init__(self) -> None:
        self.now = 0.0
        self._last: float | None = None

    def tick(self, clock_s: float) -> None:
        """It is `clock_s` by the wall clock, seconds since the epoch."""
        if self._last is not None:
            self.now += min(max(0.0, clock_s - self._last), _MOST_S)
        self._last = clock_s
