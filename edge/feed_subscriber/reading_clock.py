"""The time by which gaps are declared and given up: it passes only while both feeds are read (S3).

An input that waits unread looks like a gap. So the clock stands still while no broker answers, while the application
does not take what was read, and while a feed has records that were not read yet. Otherwise an outage of a minute, or a
slow application, would lose what is in the log. It is monotonic, in seconds; pure: the time of the machine comes in.
"""

from typing import Final

GRACE_S: Final = 0.3
"""So long after the last sign that all is read the clock goes on: reading takes turns with other work."""


class ReadingClock:
    """Begins at 0."""

    __slots__ = ("_last", "_read_until", "now_s")

    def __init__(self, now: float) -> None:
        self.now_s = 0.0
        self._last = self._read_until = now

    def note(self, now: float, *, is_read: bool) -> None:
        """Whether all feeds that can be read are read up to their end, at machine time `now`."""
        self.advance(now)
        if is_read:
            self._read_until = now + GRACE_S

    def advance(self, now: float) -> float:
        """The reading time at machine time `now`."""
        self.now_s += max(0.0, min(now, self._read_until) - self._last)
        self._last = max(self._last, now)
        return self.now_s

    @property
    def is_running(self) -> bool:
        """Whether it ran when it was asked last."""
        return self._last < self._read_until
