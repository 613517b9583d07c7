"""Keeping two routers half a batch apart (R5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.phase import OFF_FRACTION, SETTLED_BATCHES, Drift, next_start

moments = st.floats(0, 2e9, allow_nan=False)
batches = st.floats(5, 60, allow_nan=False)


@given(moments, batches, moments)
def test_the_next_start_is_in_phase_and_within_a_batch(now: float, batch_s: float, anchor: float) -> None:
    start = next_start(now, batch_s, anchor)
    assert now - 1e-5 <= start <= now + batch_s + 1e-5
    periods = (start - anchor) / batch_s
    assert periods == pytest.approx(round(periods), abs=1e-4)


@given(moments, batches)
def test_twins_stay_half_a_batch_apart(now: float, batch_s: float) -> None:
    """R5: a router's pause is covered by its twin."""
    ahead = abs(next_start(now, batch_s, 0.0) - next_start(now, batch_s, batch_s / 2))
    assert ahead == pytest.approx(batch_s / 2, abs=1e-4)


@given(batches, st.floats(0, 0.09), st.floats(-0.5, 0.5))
def test_a_constant_pause_is_learned_and_made_up_for(batch_s: float, pause_part: float, off_part: float) -> None:
    """Batch and pause together fill the period, so that a router in phase stays in phase."""
    anchor, pause_s = 1_000.0, batch_s * pause_part
    drift = Drift(batch_s, anchor)
    trigger_s = drift.begin()
    assert trigger_s == batch_s
    for _ in range(2):
        began = anchor + off_part * batch_s
        for batch_id in range(30):
            drift.saw(batch_id, began)
            drift.saw(batch_id, began + 0.1)  # shown again: nothing new
            began += trigger_s + pause_s
        trigger_s = drift.begin()
        assert drift.off_s == 0.0
    assert drift.pause_s == pytest.approx(pause_s, abs=1e-6)
    assert trigger_s + pause_s == pytest.approx(batch_s, abs=1e-6)


@given(batches, st.floats(-0.49, 0.49), st.integers(0, 1_000))
def test_it_is_off_when_it_has_drifted_too_far(batch_s: float, off_part: float, periods: int) -> None:
    drift = Drift(batch_s, 1_000.0)
    drift.begin()
    for batch_id in range(SETTLED_BATCHES):
        assert not drift.is_off, "not before it has settled"
        drift.saw(batch_id, 1_000.0 + (periods + off_part) * batch_s)
    assert drift.off_s == pytest.approx(off_part * batch_s, abs=1e-6)
    if abs(abs(off_part) - OFF_FRACTION) > 1e-6:
        assert drift.is_off == (abs(off_part) > OFF_FRACTION)


def test_a_batch_that_was_missed_teaches_no_pause() -> None:
    drift = Drift(10.0, 0.0)
    drift.begin()
    drift.saw(1, 0.0)
    drift.saw(5, 50.0)
    assert drift.pause_s == 0.0
