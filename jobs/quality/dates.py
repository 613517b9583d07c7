"""Which dates to judge, and what of them: decided from what the tables' logs and earlier results tell."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from jobs.errors import QualityError
from jobs.quality.contents import Contents, Day
from schemas.tables import HISTORY, MESSAGES

DAY = timedelta(days=1)


class Asked(NamedTuple):
    """The `dates` asked for, or all `since` one; neither: those that have rows which no run has judged."""

    dates: Sequence[date] = ()
    since: date | None = None


class Judged(NamedTuple):
    """What the last run on a date and table saw: so many rows, and judged those appended before `until`."""

    rows: int
    until: datetime


def to_judge(
    asked: Asked, contents: Mapping[str, Contents], judged: Mapping[tuple[date, str], Judged], until: datetime
) -> list[date]:
    """The dates to judge, ascending. Raises QualityError if a date is asked for that has no rows."""
    there = sorted({one for table in contents.values() for one, day in table.days.items() if day.rows})
    if missing := sorted(set(asked.dates) - set(there)):
        known = f"; it has {there[0]} to {there[-1]}" if there else ""
        raise QualityError(f"the ledger has no rows of {', '.join(map(str, missing))}{known}")
    if asked.dates or asked.since is not None:
        return [one for one in there if one in asked.dates or (asked.since is not None and one >= asked.since)]
    return [one for one in there if any(_is_due(one, name, table, judged, until) for name, table in contents.items())]


def _is_due(one: date, name: str, table: Contents, judged: Mapping[tuple[date, str], Judged], until: datetime) -> bool:
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
    """The dates in groups that span so many days at most, ascending."""
    group: list[date] = []
    for one in dates:
        if group and (one - group[0]).days >= span_days:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def looked_for_since(dates: Sequence[date], contents: Mapping[str, Contents], window_days: int) -> date:
    """From which date on the rows of `dates` find what they refer to: the oldest message they are about, the day before
    the first of them in any case, the last day before it that has messages, and no more than the message window."""
    first = min(dates)
    limit = first - window_days * DAY
    about = [table.name for table in HISTORY if any(column.name == "message_appended" for column in table.columns)]
    days = [day for name in about for one, day in contents[name].days.items() if one in dates and day.rows]
    earlier = [one for one in contents[MESSAGES.name].days if one < first]
    oldest = [day.oldest_message.date() if day.oldest_message else limit for day in days]
    return max(limit, min([first - DAY, *oldest, *([max(earlier)] if earlier else [])]))
