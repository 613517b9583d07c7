"""Moving averages over 1, 5 and 15 minutes, as in `$SYS/broker/load/…`: rates per minute that decay over time."""

import math
from collections.abc import Mapping

MINUTES = (1, 5, 15)


class Load:
    """The averages of several running totals, by name. Pure: the time since the last call comes in."""

    def __init__(self) -> None:
        self._totals: dict[str, int] = {}
        self._averages: dict[tuple[str, int], float] = {}

    def update(self, totals: Mapping[str, int], elapsed_s: float) -> dict[tuple[str, int], float]:
        """The averages by (name, minutes), `elapsed_s` seconds after the last call, with the totals as they are now.
        Averages and totals start at 0."""
        for name, total in totals.items():
            rate = (total - self._totals.get(name, 0)) * 60 / elapsed_s
            for minutes in MINUTES:
                kept = math.exp(-elapsed_s / (60 * minutes))
                old = self._averages.get((name, minutes), 0.0)
                self._averages[name, minutes] = rate + kept * (old - rate)
        self._totals = dict(totals)
        return dict(self._averages)
