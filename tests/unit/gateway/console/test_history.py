"""The ring of samples behind the plots: rates, percentiles, and what is drawn of them."""

import json
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.history import History, Sample
from gateway.console.plots import SPAN_S, plot
from gateway.console.text import plain_number

totals = st.lists(st.tuples(st.floats(0.5, 60), st.integers(0, 10_000)), max_size=40)


def sample(at: float, published: int = 0, buckets: tuple[tuple[float, float], ...] = ()) -> Sample:
    return Sample(at, (published, 0, 0), (0, 0, 0), 0, 0, 0, 0.0, 0, 0, {"produce": buckets})


@given(totals)
def test_rates_are_what_was_counted_over_the_time_between(steps: list[tuple[float, int]]) -> None:
    history, at, total = History(1_000), 0.0, 0
    history.add(sample(at))
    for seconds, more in steps:
        at, total = at + seconds, total + more
        history.add(sample(at, total))
    series = history.rates(lambda one: one.received[0])
    assert len(series.values) == len(steps)
    for (seconds, more), rate in zip(steps, series.values, strict=True):
        assert abs(rate * seconds - more) < 1e-3


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(1, 5))
def test_the_ring_is_bounded_and_in_order(times: list[float], most: int) -> None:
    history = History(most)
    for at in times:
        history.add(sample(at))
    kept = history.values(lambda one: one.at)
    assert len(history) <= most
    assert list(kept.values) == sorted(set(kept.values))
    assert history.span_s >= 0


def test_a_counter_that_was_set_back_is_no_negative_rate() -> None:
    history = History()
    history.add(sample(0, 100))
    history.add(sample(2, 0))
    assert history.rates(lambda one: one.received[0]).values == [0]


def test_percentiles_are_of_the_window_only() -> None:
    """What was observed before the oldest sample does not count."""
    history = History()
    history.add(sample(0, buckets=((0.001, 900), (0.01, 900), (inf, 900))))
    history.add(sample(2, buckets=((0.001, 900), (0.01, 998), (inf, 1_000))))
    assert history.percentiles("produce") == (100, 0.01, inf)
    assert history.percentiles("checkpoint") == (0, None, None)
    assert History().percentiles("produce") == (0, None, None)


@given(totals)
def test_plots_have_the_values_of_the_last_minutes(steps: list[tuple[float, int]]) -> None:
    history, at = History(), 0.0
    for seconds, value in steps:
        at += seconds
        history.add(sample(at, value))
    drawn = plot("values", [("a", history.values(lambda one: one.received[0]))], plain_number)
    data = json.loads(drawn.data)
    (values,) = data["lines"]
    assert len(data["times"]) == len(values)
    assert data["times"] == sorted(data["times"])
    assert all(-SPAN_S <= at <= 0 for at in data["times"])
    assert not values or data["times"][-1] == 0
    assert values == pytest.approx([value for _, value in steps[len(steps) - len(values) :]], rel=1e-3)
