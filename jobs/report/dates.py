"""Chooses the dates to report on."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from jobs.errors import ReportError
from jobs.quality.contents import Contents, Day
from schemas.feed_tables import FEED_COPIES
from schemas.tables import COMPLETIONS, INSTRUCTIONS, MESSAGES, OUTCOMES, PRESENCE_HISTORY, QUARANTINE

SHOWN = tuple(
    t.name for t in (MESSAGES, INSTRUCTIONS, OUTCOMES, COMPLETIONS, PRESENCE_HISTORY, FEED_COPIES, QUARANTINE)
)
"""The tables whose rows make a date worth a page."""


class Chosen(NamedTuple):
    """`dates`, ascending, and `why` in words if none were requested."""

    dates: list[date]
    why: str = ""


def choose(asked: Sequence[date], contents: Mapping[str, Contents], today: date) -> Chosen:
    """The requested dates; by default yesterday, or the newest date that has messages. Raises ReportError if a date has
    no rows, or none has."""
    there = sorted({day for name in SHOWN for day in _days(contents, name)})
    if not there:
        raise ReportError("the ledger has no rows yet: publish a message, and try again in a few seconds")
    if missing := sorted(set(asked) - set(there)):
        raise ReportError(
            f"the ledger has no rows on {', '.join(map(str, missing))}: choose a date from {there[0]} to {there[-1]} "
            f"(UTC)"
        )
    if asked:
        return Chosen(sorted(set(asked)))
    with_messages = _days(contents, MESSAGES.name)
    if (yesterday := today - timedelta(days=1)) in with_messages:
        return Chosen([yesterday], "yesterday")
    if with_messages:
        return Chosen([max(with_messages)], "the newest date with messages")
    return Chosen([there[-1]], "the newest date; it has no messages")


def activity(contents: Mapping[str, Contents], day: date) -> Day:
    """A date's rows over all tables shown, with the lowest and highest append time."""
    days = [_days(contents, name)[day] for name in SHOWN if day in _days(contents, name)]
    return Day(
        sum(one.rows for one in days),
        min((one.oldest for one in days if one.oldest), default=None),
        max((one.newest for one in days if one.newest), default=None),
    )


def _days(contents: Mapping[str, Contents], name: str) -> dict[date, Day]:
    known = contents[name].days if name in contents else {}
    return {day: one for day, one in known.items() if one.rows}
