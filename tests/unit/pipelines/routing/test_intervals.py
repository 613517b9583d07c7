"""Intervals of routes folded from their events: as the plain fold has them, at a cost that grows with the events."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.routing import intervals as module
from pipelines.routing.intervals import Interval, RouteChange, intervals
from schemas.tables import FAR_FUTURE

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def plainly(changes: Iterable[RouteChange]) -> list[Interval]:
    """The rules of :mod:`pipelines.routing.routes` word by word, each event compared with all that came before."""
    known: list[Interval] = []
    for change in sorted(changes):
        own = [one for one in known if one.shard == change.shard]
        others = [one for one in known if one.shard != change.shard]
        if change.op == "drop":
            own = [
                one._replace(until=max(one.start, change.effective), by=(*one.by, change))
                if one.until == FAR_FUTURE
                else one
                for one in own
            ]
            own = [one for one in own if one.start < one.until]
        elif any(one.covers(change.effective) for one in own):
            own = [
                one._replace(until=FAR_FUTURE, by=(*one.by, change))
                if one.covers(change.effective) and one.until != FAR_FUTURE
                else one
                for one in own
            ]
        elif not any(one.until == FAR_FUTURE for one in own):
            own.append(Interval(change.shard, change.effective, FAR_FUTURE, (change,)))
        known = others + own
    return sorted(known, key=lambda one: one.by[0].offset)


steps = st.tuples(
    st.sampled_from(["add", "add", "drop"]), st.integers(0, 2), st.integers(0, 8), st.sampled_from([0, 3, 9])
)


@given(st.lists(steps, max_size=60))
def test_as_the_plain_fold_has_them(found: list[tuple[str, int, int, int]]) -> None:
    """R7: whatever the leads were, so that events do not take effect in the order in which they came."""
    changes, at = [], BEGIN
    for offset, (op, shard, pause, lead) in enumerate(found):
        at += pause * SECOND
        changes.append(RouteChange(offset, op, shard, at + lead * SECOND, at))
    assert intervals(changes) == plainly(changes)


def test_years_of_events_are_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a key that came and went 25,000 times no more than two intervals are ever looked at, and all are told."""
    at = [BEGIN + n * 60 * SECOND for n in range(50_000)]
    changes = [RouteChange(n, "drop" if n % 2 else "add", n // 2 % 2, at[n], at[n]) for n in range(len(at))]
    looked_at: list[int] = []

    def counting(fold: Callable[..., Any]) -> Callable[..., Any]:
        def folded(living: list[Any], change: RouteChange) -> Any:
            looked_at.append(len(living))
            return fold(living, change)

        return folded

    for name in ("_added", "_dropped"):
        monkeypatch.setattr(module, name, counting(getattr(module, name)))
    found = intervals(changes)
    assert (len(found), len(looked_at)) == (25_000, 50_000)
    assert max(looked_at) <= 2
    assert found[-1] == Interval(1, at[-2], at[-1], tuple(changes[-2:]))
