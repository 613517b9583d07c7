"""When which shard wants a route key, from the events of `routes_history`, in plain Python: one key at a time, and with
the events that led to each interval.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from schemas.tables import FAR_FUTURE


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


def intervals(changes: Iterable[RouteChange]) -> list[Interval]:
    """The intervals of one route key after `changes`, in order of their first events: the result of
    :func:`pipelines.routing.routes.stepped`, except that nothing is forgotten."""
    of_shard: dict[int, list[RouteChange]] = defaultdict(list)
    for change in sorted(changes):
        of_shard[change.shard].append(change)
    found = (one for own in of_shard.values() for one in _of_one_shard(own))
    return sorted(found, key=lambda one: one.by[0].offset)


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
