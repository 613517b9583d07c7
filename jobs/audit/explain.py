"""Why a message went where it went: repeats its routing decision from the ledger, and shows its outcomes.

For one message and without Spark; :mod:`jobs.audit` does it for all messages of a day.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jobs.query.journeys import no_message
from jobs.query.ledger_reader import LedgerReader, installed_blocks
from pipelines.routing.decisions import Judgement, Watermarks, judged, wanted_by
from pipelines.routing.intervals import Interval, RouteChange, intervals
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
    instructions: tuple[Mapping[str, Any], ...]
    outcomes: tuple[Row, ...]
    completion: Row | None

    @property
    def is_inbox(self) -> bool:
        """Addressed to one client, so that routes do not matter."""
        return bool(self.message["destination"].startswith(INBOX_MARK))


def explain(reader: LedgerReader, message_id: str, shards: int, watermarks: Watermarks) -> list[Explanation]:
    """The explanation of a message: one, or one for each time that a sender's retry was accepted.

    `watermarks`: the completeness watermarks, taken before `reader` was created; `shards`: their number. Raises
    QueryError if the ledger does not have the message.
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
    untouched = {one["message_appended"] for one in outcomes if one["outcome"] == "untouched"}
    candidates = [_candidates(reader, sql["changes"], copy, shards) for copy in copies]
    accepted = [copy | {"wanted": wanted} for copy, (_, _, wanted) in zip(copies, candidates, strict=True)]
    found = judged(accepted, instructions, untouched, copies[0]["appended"], shards, watermarks)
    explanations = []
    for copy, keys_routes_wanted, one in zip(copies, candidates, found, strict=True):
        others = {other["appended"] for other in copies} - {copy["appended"]}
        own, completion = _except_of(others, outcomes), next(iter(_except_of(others, completions)), None)
        explanations.append(
            Explanation(copy, *keys_routes_wanted, one.judgement, tuple(one.instructions), own, completion)
        )
    return explanations


def _candidates(
    reader: LedgerReader, sql: str, message: Row, shards: int
) -> tuple[tuple[str, ...], tuple[Route, ...], tuple[int, ...]]:
    """The message's candidate route keys, none for an inbox; their routes in effect at its append time; the shards it
    should go to."""
    destination, appended = message["destination"], message["appended"]
    keys = () if destination.startswith(INBOX_MARK) else tuple(candidate_keys(destination))
    by_key: dict[str, list[RouteChange]] = defaultdict(list)
    for row in _rows(reader, sql, list(keys)) if keys else []:
        by_key[row["route_key"]].append(RouteChange(*(row[name] for name in RouteChange._fields)))
    known = (Route(key, interval) for key in keys for interval in intervals(by_key[key]))
    routes = tuple(route for route in known if route.interval.covers(appended))
    return keys, routes, tuple(wanted_by(destination, shards, [route.interval for route in routes], appended))


def _except_of(others: Collection[datetime], rows: Sequence[Row]) -> tuple[Row, ...]:
    """Without what became of the message when it was accepted at other times. A retained message sent on SUBSCRIBE has
    a time of its own."""
    return tuple(row for row in rows if row["message_appended"] not in others)


def _rows(reader: LedgerReader, sql: str, *parameters: Any) -> list[Row]:
    found = reader.query(sql, parameters)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]
