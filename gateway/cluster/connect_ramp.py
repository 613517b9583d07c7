"""New connections after a member was lost: let in at a rate that grows (R9, G14; freenet-core#3210). Pure: times come
in, monotonic seconds.

All clients of a gateway that is lost come to the others at the same moment. Each connection costs its new gateway a
session, so too many at once make it late with its heartbeats, and it is taken for lost in its turn. The ramp spreads
them: from a loss on, connections are let in at `per_s`, a rate that grows evenly to GROWTH times that within `lasts_s`.
Then there is no bound any more, once all that wait are let in.

Each connection gets a time when it arrives, in order of arrival. The n-th is let in when the ramp has allowed n: at

    n = per_s * t + (GROWTH - 1) * per_s * t² / (2 * lasts_s)        t seconds after the loss

What is not used is not saved, except for the BURST_S of the first rate, so a few clients never wait. Who would have to
wait for longer than `wait_s` is refused, which bounds how many wait. It takes no one's place.
"""

from math import sqrt
from typing import Final

GROWTH: Final = 5.0
"""The rate at the end of a ramp, relative to that at its beginning."""

BURST_S: Final = 0.2
"""How much of the first rate may be let in at once, in seconds."""


class ConnectRamp:
    """`per_s`, `lasts_s`, `wait_s`: above 0. Without a loss nothing waits."""

    def __init__(self, per_s: float, lasts_s: float, wait_s: float) -> None:
        self._per_s, self._lasts_s, self._wait_s = per_s, lasts_s, wait_s
        self._growth = (GROWTH - 1) * per_s / (2 * lasts_s)
        self._in_all = per_s * lasts_s * (1 + GROWTH) / 2
        self._burst = per_s * BURST_S
        self._began: float | None = None
        self._next = 0.0

    @property
    def is_on(self) -> bool:
        """Whether connections may have to wait; the end is noticed when the next one arrives."""
        return self._began is not None

    def begin(self, now: float) -> None:
        """A member was lost. Who waits keeps its time; the ramp begins anew behind it."""
        waiting = -self._burst if self._began is None else self._next - self._allowed(now - self._began)
        self._began, self._next = now, max(waiting, -self._burst)

    def delay(self, now: float) -> float | None:
        """How long the connection that arrives now has to wait, seconds; None if it is refused."""
        if self._began is None:
            return 0.0
        passed = now - self._began
        allowed = self._allowed(passed)
        if passed >= self._lasts_s and self._next <= allowed:
            self._began = None
            return 0.0
        number = max(self._next, allowed - self._burst)
        wait = max(0.0, self._time_of(number) - passed)
        if wait > self._wait_s:
            return None
        self._next = number + 1
        return wait

    def _allowed(self, passed: float) -> float:
        """How many connections are allowed within so many seconds after the loss."""
        if passed < self._lasts_s:
            return self._per_s * passed + self._growth * passed * passed
        return self._in_all + self._per_s * GROWTH * (passed - self._lasts_s)

    def _time_of(self, number: float) -> float:
        """When so many are allowed, seconds after the loss: the inverse of `_allowed`."""
        if number <= 0:
            return 0.0
        if number < self._in_all:
            return (sqrt(self._per_s * self._per_s + 4 * self._growth * number) - self._per_s) / (2 * self._growth)
        return self._lasts_s + (number - self._in_all) / (self._per_s * GROWTH)
