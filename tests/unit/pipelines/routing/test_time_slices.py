"""The targets of a route key by time: how many a message looks at, and that it misses none (R7)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.arrow_schemas import arrow_schema
from pipelines.routing.time_slices import FEW, SLICE_S, in_slices
from schemas.tables import FAR_FUTURE, ROUTES

NOW = datetime(2026, 11, 20, 12, 34, 56, tzinfo=UTC)
HOURS_OF_A_WEEK = 7 * 24

Target = tuple[int, datetime, datetime]

moments = st.integers(0, 40 * 3600).map(lambda s: NOW - timedelta(seconds=s))
lengths = st.one_of(st.integers(1, 2 * SLICE_S), st.just(0), st.integers(1, 40 * 3600))
targets = st.tuples(st.integers(0, 2), moments, lengths).map(
    lambda one: (one[0], one[1], one[1] + timedelta(seconds=one[2]) if one[2] else FAR_FUTURE)
)


def sliced(*keys: Sequence[Target]) -> list[list[list[Target]]]:
    """The slices of each key."""
    names = "shard", "effective_from", "effective_until"
    rows = [[dict(zip(names, one, strict=True)) for one in of_key] for of_key in keys]
    found = in_slices(pa.array(rows, arrow_schema(ROUTES).field("targets").type))
    return [[[tuple(one.values()) for one in part] for part in of_key] for of_key in found.to_pylist()]


def seen_at(moment: datetime, slices: list[list[Target]]) -> list[Target]:
    return slices[int(moment.timestamp()) // SLICE_S % len(slices)]


def comes_and_goes(every_s: int, for_s: int, times: int) -> list[Target]:
    """The last interval is still open."""
    begins = [NOW - timedelta(seconds=every_s * n) for n in range(times, -1, -1)]
    return [(1, begin, begin + timedelta(seconds=for_s)) for begin in begins[:-1]] + [(1, NOW, FAR_FUTURE)]


@pytest.mark.parametrize(
    ("every_s", "for_s", "most"),
    [
        pytest.param(90, 60, 60, id="every minute and a half"),
        pytest.param(3000, 2400, 20, id="every fifty minutes"),
        pytest.param(3700, 3650, 2 * HOURS_OF_A_WEEK, id="just too long"),
    ],
)
def test_a_message_looks_at_few_of_those_that_have_ended(every_s: int, for_s: int, most: int) -> None:
    """However often the subscriber has come and gone in a week, and wherever in it the message is from."""
    of_key = comes_and_goes(every_s, for_s, 7 * 24 * 3600 // every_s)
    (slices,) = sliced(of_key)
    assert max(map(len, slices)) <= most
    assert sum(map(len, slices)) <= 3 * len(of_key)


def test_some_long_ones_among_many_short_ones_do_not_fill_the_memory() -> None:
    long = [(shard, NOW - timedelta(days=6), FAR_FUTURE) for shard in range(64)]
    of_key = long + comes_and_goes(90, 60, 6000)
    (slices,) = sliced(of_key)
    assert max(map(len, slices)) <= 2 * len(long) + 60
    assert sum(map(len, slices)) <= 3 * len(of_key)


def test_a_key_with_few_targets_has_one_slice() -> None:
    few = comes_and_goes(90, 60, FEW - 1)
    assert sliced([], few, comes_and_goes(90, 60, 1000))[:2] == [[[]], [few]]


@given(keys=st.lists(st.lists(targets, max_size=3 * FEW), max_size=4), moment=moments)
def test_a_message_finds_each_target_in_effect_once(keys: list[list[Target]], moment: datetime) -> None:
    for of_key, slices in zip(keys, sliced(*keys), strict=True):
        wanted = [one for one in of_key if one[1] <= moment < one[2]]
        assert sorted(one for one in seen_at(moment, slices) if one[1] <= moment < one[2]) == sorted(wanted)
        assert set(chain(*slices)) == set(of_key), "nothing is made up or left out"
