"""A routing decision and what must hold of it, in plain Python: which shards should get a message, and whether the
ledger agrees (R3, R6, R7).

For one message at a time. :mod:`pipelines.routing.audit` judges a day of messages with Spark, by the routers' own
functions. A property test checks that the two agree.

A decision is right if its instructions go to exactly the shards they should, ascending, numbered 0 … n-1, with n as
limit on the last. A message may have two decisions: of scope `routed`, by the routes in effect when it was appended;
and of scope `everyone`, to every shard, by a router that could not know whether the routes were complete. One is
enough. A message that no shard wants has an `untouched` record in place of the first.

Differences:

| kind          | meaning                                                                                       |
|---------------|-----------------------------------------------------------------------------------------------|
| `missing`     | shards that should have been instructed and were not                                          |
| `superfluous` | shards that were instructed and should not have been; an inbox never goes to everyone         |
| `numbering`   | the right shards, but numbers or limit are not as described above                             |
| `untouched`   | reported as wanted by nobody, although shards want it                                         |
| `undecided`   | nobody wants it, but this was not reported                                                    |
| `unknown`     | instructions for a message that the ledger lacks, or for another position on `ingress`        |
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from schemas.envelope import EVERYONE, ROUTED
from schemas.identity import INBOX_MARK, shard_of
from schemas.tables import FAR_FUTURE

MISSING = "missing"
SUPERFLUOUS = "superfluous"
NUMBERING = "numbering"
UNTOUCHED = "untouched"
UNDECIDED = "undecided"
UNKNOWN = "unknown"

RIGHT = "right"
DIFFERS = "differs"
LATER = "later"
"""Verdicts. `later`: what exists is right, but the ledger is not yet complete enough to know the routes, or to say that
something is missing."""


class RouteChange(NamedTuple):
    """A row of `routes_history`, without its route key."""

    offset: int
    op: str
    shard: int
    effective: datetime
    appended: datetime


class Interval(NamedTuple):
    """A shard wants a route key for messages appended in [start, until). `by` are the events that led to this."""

    shard: int
    start: datetime
    until: datetime
    by: tuple[RouteChange, ...]

    def covers(self, moment: datetime) -> bool:
        return self.start <= moment < self.until


class Instructed(NamedTuple):
    """The decision in a row of `instructions`."""

    scope: str
    shard: int
    number: int
    limit: int | None


class Difference(NamedTuple):
    """`scope` of the decision in which it was found; `shards` it concerns, ascending."""

    kind: str
    scope: str
    shards: tuple[int, ...]


class Reach(NamedTuple):
    """The ledger's completeness watermarks, as append times of messages; None if nothing is complete.

    For messages appended before `routes`, all routes are known. For those before `instructions`, `untouched` or
    `messages`, an absent instruction, `untouched` record or message will not come any more.
    """

    routes: datetime | None
    instructions: datetime | None
    untouched: datetime | None
    messages: datetime | None

    def settled(self, appended: datetime) -> "Settled":
        """What is settled about a message with this append time."""
        return Settled(*(end is not None and appended < end for end in self[:3]))


class Settled(NamedTuple):
    """Whether the ledger is complete enough: the message's `routes` are known, its `instructions` would be present, its
    `untouched` record would be present."""

    routes: bool
    instructions: bool
    untouched: bool


class Message(NamedTuple):
    """What is needed to judge the decisions on a message: `wanted`, the shards it should go to, ascending; whether it
    is addressed to one client (`inbox`); whether it was reported as `untouched`, wanted by nobody; `instructed`, its
    instructions; `elsewhere`, instructions with its id for another position on `ingress`."""

    wanted: Sequence[int]
    inbox: bool
    untouched: bool
    instructed: Sequence[Instructed]
    elsewhere: Sequence[Instructed] = ()


class Judgement(NamedTuple):
    verdict: str
    differences: tuple[Difference, ...] = ()


def intervals(changes: Iterable[RouteChange]) -> list[Interval]:
    """The intervals of one route key after `changes`, in order of their first events: the result of
    :func:`pipelines.routing.routes.stepped`, except that nothing is forgotten."""
    of_shard: dict[int, list[RouteChange]] = defaultdict(list)
    for change in sorted(changes):
        of_shard[change.shard].append(change)
    found = (one for own in of_shard.values() for one in _of_one_shard(own))
    return sorted(found, key=lambda one: one.by[0].offset)


def wanted_by(destination: str, shards: int, routes: Sequence[Interval], appended: datetime) -> list[int]:
    """The shards that a message should go to, ascending, by the `routes` of all its candidate keys."""
    if destination.startswith(INBOX_MARK):
        return [shard_of(destination[len(INBOX_MARK) :], shards)]
    return sorted({route.shard for route in routes if route.covers(appended)})


def judge(message: Message, shards: int, settled: Settled) -> Judgement:
    """The verdict on the decisions about a message; `shards` is the number of shards."""
    if not settled.routes:
        return Judgement(LATER)
    wanted, untouched = message.wanted, message.untouched
    by_routes = [one for one in message.instructed if one.scope == ROUTED]
    to_everyone = [one for one in message.instructed if one.scope == EVERYONE]
    found: list[Difference] = []
    if by_routes or (wanted and not to_everyone and not untouched):
        found += _compared(ROUTED, wanted, by_routes)
    if to_everyone:
        found += _compared(EVERYONE, () if message.inbox else range(shards), to_everyone)
    if untouched and wanted:
        found.append(Difference(UNTOUCHED, ROUTED, tuple(wanted)))
    if not (message.instructed or untouched or wanted):
        found.append(Difference(UNDECIDED, ROUTED, ()))
    if message.elsewhere:
        found.append(Difference(UNKNOWN, ROUTED, tuple(sorted({one.shard for one in message.elsewhere}))))
    expected_yet = {MISSING: settled.instructions, UNDECIDED: settled.untouched}
    sure = tuple(difference for difference in found if expected_yet.get(difference.kind, True))
    if sure:
        return Judgement(DIFFERS, sure)
    return Judgement(LATER if found else RIGHT)


def _compared(scope: str, wanted: Sequence[int], instructed: Sequence[Instructed]) -> list[Difference]:
    given = {one.shard for one in instructed}
    missing, superfluous = sorted(set(wanted) - given), sorted(given - set(wanted))
    found = [
        Difference(kind, scope, tuple(shards))
        for kind, shards in ((MISSING, missing), (SUPERFLUOUS, superfluous))
        if shards
    ]
    if found:
        return found
    last = len(wanted) - 1
    right = [Instructed(scope, shard, n, len(wanted) if n == last else None) for n, shard in enumerate(wanted)]
    if sorted(instructed, key=lambda one: (one.shard, one.number)) == right:
        return []
    return [Difference(NUMBERING, scope, tuple(wanted))]


@dataclass(slots=True)
class _Span:
    """An interval under construction."""

    start: datetime
    until: datetime
    by: list[RouteChange]


def _of_one_shard(changes: Sequence[RouteChange]) -> Iterator[Interval]:
    """The intervals of one route key and shard after `changes`, ascending by offset.

    Years of events are folded in one pass. An interval that has ended before any remaining event takes effect is set
    aside, so there is seldom more than one to look at.
    """
    # When the first of this event and all later ones takes effect. If the lead was changed, effects are not in event
    # order.
    first_effects = list(accumulate((change.effective for change in reversed(changes)), min))
    living: list[_Span] = []
    for change in changes:
        first_effect = first_effects.pop()
        over, living = _parted(living, first_effect)
        yield from (_interval(change.shard, one) for one in over)
        living = _added(living, change) if change.op == "add" else _dropped(living, change)
    yield from (_interval(changes[0].shard, one) for one in living)


def _parted(living: list[_Span], moment: datetime) -> tuple[list[_Span], list[_Span]]:
    """Those that have ended by then, and the others."""
    over = [one for one in living if one.until <= moment]
    return over, [one for one in living if one.until > moment] if over else living


def _interval(shard: int, span: _Span) -> Interval:
    return Interval(shard, span.start, span.until, tuple(span.by))


def _added(living: list[_Span], change: RouteChange) -> list[_Span]:
    covering = [one for one in living if one.start <= change.effective < one.until]
    for one in covering:
        if one.until != FAR_FUTURE:
            one.until = FAR_FUTURE
            one.by.append(change)
    if covering or any(one.until == FAR_FUTURE for one in living):
        return living
    return [*living, _Span(change.effective, FAR_FUTURE, [change])]


def _dropped(living: list[_Span], change: RouteChange) -> list[_Span]:
    for one in living:
        if one.until == FAR_FUTURE:
            one.until = max(one.start, change.effective)
            one.by.append(change)
    return [one for one in living if one.start < one.until]
