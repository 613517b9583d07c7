"""The broker's clock, as far as this gateway can tell (G14). Pure: times come in.

Messages, routes and fences are compared by the times at which the broker appended them. This machine's clock may be
seconds off, and those of two gateways may differ. Heartbeats tell the broker's time: one comes every fraction of a
second, and when it is read, the broker's clock shows its append time or later. The estimate is therefore never ahead of
the broker's clock, and behind it by about as long as a record takes from the broker to here.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

_REMEMBERED: Final = 64
"""Heartbeats: about ten seconds of one gateway. Longer, and clocks that run at different speeds would count."""


class BrokerClock:
    """Before the first heartbeat it shows this machine's time, `clock`, seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard: deque[float] = deque(maxlen=_REMEMBERED)

    def heard(self, appended_ms: int, now: float) -> None:
        """A record that has just been appended was read at `now`, monotonic seconds."""
        self._heard.append(appended_ms / 1000 - now)

    def ms(self, now: float) -> int:
        """The broker's time at `now`, ms since the epoch."""
        return int(1000 * (now + max(self._heard) if self._heard else self._clock()))
