"""Which dates to judge, and up to which row: decided from the tables' logs and earlier results."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from jobs.errors import QualityError
from jobs.quality.contents import Contents, Day
from schemas.tables import HISTORY

DAY = timedelta(days=1)


class Asked(NamedTuple):
    """The `dates` requested, or all `since` one; neither: those with rows that no run has judged."""

    dates: Sequence[date] = ()
    since: date | None = None


class Judged(NamedTuple):
    """What the last run on a date, which began `at`, found in a table: `rows` of them, of which it judged those
    appended before `until`; and whether its expectations held (`holds`)."""

    rows: int
    until: datetime
    holds: bool = True
    at: datetime = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC without a zone, as all times of the job are


History = Mapping[tuple[date, str], Judged]
"""The last runs, by date and table."""


class Choice(NamedTuple):
    """The `dates` to judge, ascending; and those `left`, which failed when they were last judged but are more than a
    run takes."""

    dates: list[date]
    left: list[date]


def to_judge(asked: Asked, contents: Mapping[str, Contents], judged: History, until: datetime, again: int) -> Choice:
    """Which dates to judge. Those that failed are due until they hold, `again` of them in a run: the ones judged
    longest ago. Raises QualityError if a requested date has no rows."""
    there = sorted({one for table in contents.values() for one, day in table.days.items() if day.rows})
    if missing := sorted(set(asked.dates) - set(there)):
        known = f": choose a date from {there[0]} to {there[-1]}" if there else ""
        raise QualityError(f"the ledger has no rows on {', '.join(map(str, missing))}{known}")
    if asked.dates or asked.since is not None:
        return Choice(
            [one for one in there if one in asked.dates or (asked.since is not None and one >= asked.since)], []
        )
    due = {one for one in there if any(_is_due(one, name, table, judged, until) for name, table in contents.items())}
    failed = _failed(judged)
    waiting = [one for one in there if one in failed and one not in due]
    # A run that judges fewer rows than the last one could wrongly find that all holds.
    able = sorted((failed[one].at, one) for one in waiting if failed[one].until <= until)
    due.update(one for _, one in able[:again])
    return Choice(sorted(due), [one for one in waiting if one not in due])


def _failed(judged: History) -> dict[date, Judged]:
    """The dates that failed when they were last judged."""
    return {one: last for (one, _), last in judged.items() if not last.holds}


def _is_due(one: date, name: str, table: Contents, judged: History, until: datetime) -> bool:
    """Whether the table has settled rows of the date that no run has judged."""
    day = table.days.get(one, Day())
    if not day.rows or (day.oldest is not None and day.oldest >= until):
        return False
    before = judged.get((one, name))
    if before is None or before.rows != day.rows:
        return True
    end = datetime.combine(one + DAY, datetime.min.time())
    return before.until <= (day.newest or end)


def passes(dates: Sequence[date], span_days: int) -> Iterator[list[date]]:
    """The dates in groups that span at most `span_days`, ascending."""
    group: list[date] = []
    for one in dates:
        if group and (one - group[0]).days >= span_days:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def looked_for_since(dates: Sequence[date], contents: Mapping[str, Contents], window_days: int) -> date:
    """The first date to search for what the rows of `dates` refer to: that of the oldest message they are about, at the
    latest the day before the first of them, and at most the message window back."""
    first = min(dates)
    limit = window_begin(dates, window_days)
    about = [table.name for table in HISTORY if any(column.name == "message_appended" for column in table.columns)]
    days = [day for name in about for one, day in contents[name].days.items() if one in dates and day.rows]
    oldest = [day.oldest_message.date() if day.oldest_message else limit for day in days]
    return max(limit, min([first - DAY, *oldest]))


def window_begin(dates: Sequence[date], window_days: int) -> date:
    """The first date to search for a partition's last offset before `dates`."""
    return min(dates) - window_days * DAY
