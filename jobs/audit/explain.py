"""Why a message went where it went: repeats its routing decision from the ledger, and shows its outcomes.

For one message and without Spark; :mod:`jobs.audit` does it for all messages of a day.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jobs.query.journeys import no_message
from jobs.query.ledger_reader import LedgerReader, installed_blocks
from pipelines.routing.decisions import (
    Instructed,
    Interval,
    Judgement,
    Message,
    Reach,
    RouteChange,
    intervals,
    judge,
    wanted_by,
)
from schemas.identity import INBOX_MARK, candidate_keys

Row = dict[str, Any]


class Route(NamedTuple):
    """A shard that wanted one of the message's route keys when it was appended; `interval.by`: the events that caused
    it."""

    route_key: str
    interval: Interval


class Explanation(NamedTuple):
    """One message as accepted: `message` is its row, `routes` those in effect, `wanted` the shards it should go to.
    `instructions`, `outcomes` and `completion` (None if there is none) are rows too."""

    message: Row
    route_keys: tuple[str, ...]
    routes: tuple[Route, ...]
    wanted: tuple[int, ...]
    judgement: Judgement
    instructions: tuple[Row, ...]
    outcomes: tuple[Row, ...]
    completion: Row | None

    @property
    def is_inbox(self) -> bool:
        """Addressed to one client, so that routes do not matter."""
        return bool(self.message["destination"].startswith(INBOX_MARK))


def explain(reader: LedgerReader, message_id: str, shards: int, reach: Reach) -> list[Explanation]:
    """The explanation of a message: one, or one for each time that a sender's retry was accepted.

    `reach`: the completeness watermarks, taken before `reader` was created; `shards`: their number. Raises QueryError
    if the ledger does not have the message.
    """
    sql = installed_blocks("jobs.audit", "decisions.sql")
    copies = _rows(reader, sql["message"], message_id)
    if not copies:
        raise no_message(message_id)
    # The brokers' clocks may differ: rows that follow a message of midnight may have the date before.
    first_day = min(copy["appended"] for copy in copies).date() - timedelta(days=1)
    instructions = _rows(reader, sql["instructions"], message_id, first_day)
    outcomes = _rows(reader, sql["outcomes"], message_id, first_day)
    completions = _rows(reader, sql["completion"], message_id, first_day)
    untouched = any(one["outcome"] == "untouched" for one in outcomes)
    places = {_place(copy) for copy in copies}
    elsewhere = [_decision(one) for one in instructions if _place(one) not in places]
    found = []
    for copy in copies:
        keys = () if copy["destination"].startswith(INBOX_MARK) else tuple(candidate_keys(copy["destination"]))
        changes = _rows(reader, sql["changes"], list(keys)) if keys else []
        routes = _in_effect(keys, changes, copy["appended"])
        wanted = wanted_by(copy["destination"], shards, [route.interval for route in routes], copy["appended"])
        own = [one for one in instructions if _place(one) == _place(copy)]
        message = Message(wanted, not keys, untouched, [_decision(one) for one in own], elsewhere)
        judgement = judge(message, shards, reach.settled(copy["appended"]))
        shown = own + [one for one in instructions if _place(one) not in places]
        completion = completions[0] if completions else None
        found.append(
            Explanation(copy, keys, tuple(routes), tuple(wanted), judgement, tuple(shown), tuple(outcomes), completion)
        )
        elsewhere = []  # shown only once
    return found


def _in_effect(keys: Sequence[str], changes: Iterable[Row], appended: datetime) -> list[Route]:
    by_key: dict[str, list[RouteChange]] = defaultdict(list)
    for row in changes:
        by_key[row["route_key"]].append(RouteChange(*(row[name] for name in RouteChange._fields)))
    known = [Route(key, interval) for key in keys for interval in intervals(by_key[key])]
    return [route for route in known if route.interval.covers(appended)]


def _decision(row: Row) -> Instructed:
    return Instructed(*(row[name] for name in Instructed._fields))


def _place(row: Row) -> tuple[int, int]:
    return row["partition"], row["offset"]


def _rows(reader: LedgerReader, sql: str, *parameters: Any) -> list[Row]:
    found = reader.query(sql, parameters)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]
