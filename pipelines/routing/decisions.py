"""A routing decision and what must hold of it, in plain Python: which shards should get a message, and whether the
ledger agrees (R3, R6, R7).

The only statement of these rules. `waystation explain` applies it to one message; `waystation audit` to those of a
period that :mod:`pipelines.routing.audit` finds doubtful.

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

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pipelines.routing.intervals import Interval
from schemas.envelope import EVERYONE, ROUTED
from schemas.identity import INBOX_MARK, shard_of

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


Row = Mapping[str, Any]


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


class Watermarks(NamedTuple):
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
        return Settled(*(end is not None and appended < end for end in self))


class Settled(NamedTuple):
    """Whether the ledger is complete enough: the message's `routes` are known; its `instructions`, its `untouched`
    record, and it itself (`messages`) would be present."""

    routes: bool
    instructions: bool
    untouched: bool
    messages: bool


class Message(NamedTuple):
    """What is needed to judge the decisions on a message: `wanted`, the shards it should go to, ascending, or None if
    the ledger lacks the message; whether it is addressed to one client (`inbox`); whether it was reported as
    `untouched`, wanted by nobody; `instructed`, its instructions; `elsewhere`, instructions with its id for another
    position on `ingress`."""

    wanted: Sequence[int] | None
    inbox: bool
    untouched: bool
    instructed: Sequence[Instructed]
    elsewhere: Sequence[Instructed] = ()


class Judgement(NamedTuple):
    verdict: str
    differences: tuple[Difference, ...] = ()


class Judged(NamedTuple):
    """The judgement on one copy of a message, one of the times that the ledger has it (None: it lacks the message).
    `instructions`: those of the copy and, with the first copy, those for a position of none."""

    copy: Row | None
    instructions: list[Row]
    judgement: Judgement


def wanted_by(destination: str, shards: int, routes: Sequence[Interval], appended: datetime) -> list[int]:
    """The shards that a message should go to, ascending, by the `routes` of all its candidate keys."""
    if destination.startswith(INBOX_MARK):
        return [shard_of(destination[len(INBOX_MARK) :], shards)]
    return sorted({route.shard for route in routes if route.covers(appended)})


def judged(
    copies: Sequence[Row],
    instructions: Sequence[Row],
    untouched: Collection[datetime],
    appended: datetime,
    shards: int,
    watermarks: Watermarks,
) -> list[Judged]:
    """The judgement on each copy of a message, or on an id that the ledger has no message for.

    Rows of `copies`: `partition, offset, appended, destination, wanted` (shards, ascending); of `instructions`:
    `partition, offset, scope, shard, number, limit`; all of one message id. `untouched`: the append times of the copies
    that were reported as wanted by nobody. `appended` is the append time of a message that the ledger lacks.
    """
    positions = {position(copy) for copy in copies}
    elsewhere = [one for one in instructions if position(one) not in positions]
    found = []
    known: Sequence[Row | None] = copies or [None]
    for copy in known:
        own = [one for one in instructions if copy is not None and position(one) == position(copy)]
        decisions = [_decision(one) for one in own], [_decision(one) for one in elsewhere]
        if copy is None:
            message = Message(None, False, appended in untouched, *decisions)
        else:
            appended, is_inbox = copy["appended"], copy["destination"].startswith(INBOX_MARK)
            message = Message(copy["wanted"], is_inbox, appended in untouched, *decisions)
        found.append(Judged(copy, own + elsewhere, judge(message, shards, watermarks.settled(appended))))
        elsewhere = []  # counted only once
    return found


def judge(message: Message, shards: int, settled: Settled) -> Judgement:
    """The verdict on the decisions about a message; `shards` is the number of shards."""
    if message.wanted is None:
        found, is_unknown_sure = [_unknown(message)], settled.messages
    elif settled.routes:
        found, is_unknown_sure = _differences(message, message.wanted, shards), True
    else:
        return Judgement(LATER)
    expected_yet = {MISSING: settled.instructions, UNDECIDED: settled.untouched, UNKNOWN: is_unknown_sure}
    sure = tuple(difference for difference in found if expected_yet.get(difference.kind, True))
    if sure:
        return Judgement(DIFFERS, sure)
    return Judgement(LATER if found else RIGHT)


def _differences(message: Message, wanted: Sequence[int], shards: int) -> list[Difference]:
    """All that is not as the module's docstring says, if the ledger is complete."""
    untouched = message.untouched
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
        found.append(_unknown(message))
    return found


def _unknown(message: Message) -> Difference:
    return Difference(UNKNOWN, ROUTED, tuple(sorted({one.shard for one in message.elsewhere})))


def position(row: Row) -> tuple[int, int]:
    """The position on `ingress` of a message, or of the one that an instruction is for: partition and offset."""
    return row["partition"], row["offset"]


def _decision(row: Row) -> Instructed:
    return Instructed(*(row[name] for name in Instructed._fields))


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
