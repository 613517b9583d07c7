"""What is due, found from the tables' logs without reading any data."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from schemas.feed_tables import FEED_COPIES, FEED_PROGRESS
from schemas.maintain_settings import MaintainSettings
from schemas.tables import (
    COMPLETIONS,
    INSTRUCTIONS,
    MESSAGE_PRESENCE_HISTORY,
    MESSAGES,
    OUTCOMES,
    PRESENCE_HISTORY,
    QUALITY_RESULTS,
    QUARANTINE,
)

KEPT_BY = {
    **dict.fromkeys((one.name for one in (MESSAGES, INSTRUCTIONS, OUTCOMES, COMPLETIONS)), "message_days"),
    **dict.fromkeys((one.name for one in (FEED_COPIES, FEED_PROGRESS)), "message_days"),
    **dict.fromkeys((one.name for one in (PRESENCE_HISTORY, MESSAGE_PRESENCE_HISTORY)), "presence_days"),
    QUARANTINE.name: "quarantine_days",
    QUALITY_RESULTS.name: "quality_days",
}
"""The setting that says how long a table's dates are kept. Other tables have no such dates, or are kept for ever."""

Stopping = Callable[[], bool]
"""Whether to end as soon as possible."""


class DataFile(NamedTuple):
    """A data file of a table, from its log: `size` in bytes."""

    path: str
    size: int
    rows: int


class Amount(NamedTuple):
    """The extent of a step; `dates` are partitions, ascending."""

    dates: tuple[date, ...] = ()
    files: int = 0
    rows: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, days: Mapping[date, Sequence[DataFile]], dates: Iterable[date]) -> "Amount":
        """Everything of these dates."""
        chosen = tuple(sorted(dates))
        files = [file for day in chosen for file in days[day]]
        return cls(chosen, len(files), sum(file.rows for file in files), sum(file.size for file in files))


class Step(NamedTuple):
    """A step that is due: its kind, its table (or what it is outside the tables), its extent, and the function that
    does it."""

    place: str
    task: str
    amount: Amount
    perform: Callable[[Stopping], None]


def by_date(files: Iterable[tuple[date, DataFile]]) -> dict[date, list[DataFile]]:
    days: dict[date, list[DataFile]] = defaultdict(list)
    for day, file in files:
        days[day].append(file)
    return dict(days)


def kept_days(settings: MaintainSettings, table: str) -> int:
    """How many days a table's dates are kept after they ended; 0: for ever."""
    return int(getattr(settings, KEPT_BY[table])) if table in KEPT_BY else 0


def kept_no_more(dates: Iterable[date], kept: int, today: date) -> list[date]:
    """Dates that ended more than `kept` whole days before `today`; none if `kept` is 0."""
    return sorted(day for day in dates if kept and day < today - timedelta(days=kept))


def scattered(
    days: Mapping[date, Sequence[DataFile]], settings: MaintainSettings, today: date, with_today: bool
) -> list[date]:
    """Dates to compact: past ones (with `with_today` the current one too) with more small files than the settings
    allow.

    The result of a compaction is not due again: its files are few, or at least half of the configured size.
    """

    def small(day: date) -> int:
        return sum(2 * file.size < settings.file_bytes for file in days[day])

    return sorted(day for day in days if (day < today or with_today) and small(day) > settings.small_files)
