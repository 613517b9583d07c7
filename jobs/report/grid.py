"""The time steps of a page's plots and tables."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

SECOND = 1_000_000
STEPS_S = (1, 5, 15, 60, 300)
"""Lengths of a step; the shortest that needs no more than `MOST_STEPS` is used. The last one suffices for a date."""
MOST_STEPS = 288
STEPS_A_ROW = 12
"""Steps per table row: an hour if a step is five minutes."""
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Grid(NamedTuple):
    """`steps` of `step_us`, starting at `begin_us`, µs since the epoch. `begin_us` is a multiple of a table row's
    length."""

    begin_us: int
    step_us: int
    steps: int

    @property
    def step_words(self) -> str:
        return _words(self.step_us)

    @property
    def row_words(self) -> str:
        return _words(self.step_us * STEPS_A_ROW)

    @property
    def has_whole_minutes(self) -> bool:
        """Whether its ticks can be told apart without seconds."""
        return self.steps * self.step_us >= 10 * 60 * SECOND

    def at(self, step: int) -> datetime:
        """When a step begins, UTC."""
        return EPOCH + timedelta(microseconds=self.begin_us + step * self.step_us)

    def row_at(self, row: int) -> str:
        """When a table's row begins, such as `13:00`."""
        return f"{self.at(row * STEPS_A_ROW):%H:%M:%S}".removesuffix(":00")

    def filled(self, found: Iterable[tuple[int, float]]) -> list[float]:
        """A value per step: the sum of those given for it, 0 if there are none."""
        values = [0.0] * self.steps
        for step, value in found:
            values[self.clamped(step)] += value
        return values

    def by_row(self, values: Sequence[float]) -> list[float]:
        """The sums of each row's steps."""
        return [sum(values[first : first + STEPS_A_ROW]) for first in range(0, self.steps, STEPS_A_ROW)]

    def at_row_ends(self, values: Sequence[int]) -> list[int]:
        """The value of each row's last step."""
        return [values[min(first + STEPS_A_ROW, self.steps) - 1] for first in range(0, self.steps, STEPS_A_ROW)]

    def of_rows(self) -> "Grid":
        """The grid with a step for each row of the tables."""
        return Grid(self.begin_us, self.step_us * STEPS_A_ROW, -(-self.steps // STEPS_A_ROW))

    def clamped(self, step: int) -> int:
        """The step, or the nearest in the grid: gateways' clocks may be slightly ahead of the broker's."""
        return min(max(step, 0), self.steps - 1)


def bounds_us(day: date) -> tuple[int, int]:
    """Start and end of a UTC date, µs since the epoch."""
    begin = datetime.combine(day, time(), UTC)
    return to_us(begin), to_us(begin + DAY)


def grid_over(day: date, oldest: datetime, newest: datetime) -> Grid:
    """A grid over what happened on `day`, from `oldest` to `newest` (UTC, to the millisecond): the whole date, or less
    if that was only a part of it."""
    begin_us, end_us = bounds_us(day)
    first, last = max(begin_us, to_us(oldest)), min(end_us - 1, to_us(newest) + 999)
    for step_s in STEPS_S[:-1]:
        step_us = step_s * SECOND
        begin = first - (first - begin_us) % (step_us * STEPS_A_ROW)
        steps = (last - begin) // step_us + 1
        if steps <= MOST_STEPS:
            return Grid(begin, step_us, steps)
    step_us = STEPS_S[-1] * SECOND
    return Grid(begin_us, step_us, (last - begin_us) // step_us + 1 if last >= begin_us else MOST_STEPS)


def utc(moment: datetime) -> datetime:
    """With its time zone, which a time from a table's log lacks."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def to_us(moment: datetime) -> int:
    """µs since the epoch."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def _words(length_us: int) -> str:
    """Such as `5 minutes`; without the number for one: `hour`."""
    for unit, name in ((3600, "hour"), (60, "minute"), (1, "second")):
        count, rest = divmod(length_us // SECOND, unit)
        if count and not rest:
            return name if count == 1 else f"{count} {name}s"
    raise ValueError(length_us)
