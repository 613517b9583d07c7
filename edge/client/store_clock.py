"""The clock by which stored messages age.

A wall clock cannot be trusted for this. A device without a battery-backed clock starts in 1970 and later jumps to the
present, and then everything it has accepted would be too old. So the store's clock counts seconds that have passed:

* while a process has the store open, by the system's time since boot, which nobody sets and which goes on in sleep;
* between two processes, by the wall clock, as far as it has advanced; if it was set back, no time has passed, and if it
  was set forward, `down_most_s` at most.

It never goes backwards, and setting the wall clock while the client runs has no effect on it.
"""

import time
from typing import Final

DOWN_MOST_S: Final = 86_400.0
"""By how much messages age at most while no process runs, unless settings say otherwise."""


class StoreClock:
    """Continues from `clock_s`, when the wall clock was at `wall_s`. `wall_now_s` and `running_now_s` (time since boot)
    are the present times. `down_most_s`: more has not passed meanwhile, whatever the wall clock says."""

    def __init__(
        self, clock_s: float, wall_s: float, wall_now_s: float, running_now_s: float, down_most_s: float
    ) -> None:
        away_s = min(max(0.0, wall_now_s - wall_s), down_most_s) if wall_s else 0.0
        self._offset_s = clock_s + away_s - running_now_s

    def at(self, running_now_s: float) -> float:
        """The store's clock, in seconds."""
        return running_now_s + self._offset_s


def running_s() -> float:
    """Seconds that only ever advance, in sleep too where the system can tell."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    return time.clock_gettime(boot_time) if boot_time is not None else time.monotonic()
