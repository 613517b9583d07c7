"""Keeping two routers half a batch apart (R5)."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.routing.phase import OFF_FRACTION, PATIENT_BATCHES, SETTLED_BATCHES, Phase, next_start

moments = st.floats(0, 2e9, allow_nan=False)
batches = st.floats(5, 60, allow_nan=False)


@given(moments, batches, moments)
def test_the_next_start_is_in_phase_and_within_a_period(now: float, period_s: float, anchor: float) -> None:
    start = next_start(now, period_s, anchor)
    assert now - 1e-5 <= start <= now + period_s + 1e-5
    periods = (start - anchor) / period_s
    assert periods == pytest.approx(round(periods), abs=1e-4)


@given(moments, batches)
def test_peers_stay_half_a_period_apart(now: float, period_s: float) -> None:
    """R5: a router's pause is covered by its peer."""
    ahead = abs(next_start(now, period_s, 0.0) - next_start(now, period_s, period_s / 2))
    assert ahead == pytest.approx(period_s / 2, abs=1e-4)


@given(batches, st.floats(0.01, 0.09), st.floats(-0.2, 0.2))
def test_a_constant_pause_is_learned_and_made_up_for(batch_s: float, pause_part: float, off_part: float) -> None:
    """Batch and pause together fill the period asked for, so that a router in phase stays in phase."""
    anchor, pause_s = 1_000.0, batch_s * pause_part
    phase = Phase(batch_s)
    trigger_s = phase.begin(batch_s)
    assert trigger_s == batch_s
    for _ in range(2):
        began = anchor + off_part * batch_s
        for batch_id in range(30):
            phase.ended(batch_id, began, trigger_s + pause_s)
            phase.ended(batch_id, began, trigger_s + 2 * pause_s)  # shown again: nothing new
            began += trigger_s + pause_s
            assert phase.began == pytest.approx(began)
        assert phase.period_s == pytest.approx(trigger_s + pause_s, abs=1e-6)
        trigger_s = phase.begin(batch_s)
        assert phase.off_s(anchor, batch_s) == 0.0, "nothing is known of the new batches yet"
    assert phase.pause_s == pytest.approx(pause_s, abs=1e-6)
    assert trigger_s + pause_s == pytest.approx(batch_s, abs=1e-6)


@given(batches, st.floats(-0.49, 0.49), st.integers(0, 1_000))
def test_it_is_off_when_it_has_drifted_too_far(batch_s: float, off_part: float, periods: int) -> None:
    phase = Phase(batch_s)
    phase.begin(batch_s, realigned=True)
    for batch_id in range(SETTLED_BATCHES):
        assert not phase.is_off(1_000.0, batch_s), "not again before it has settled"
        phase.ended(batch_id, 1_000.0 + (periods + off_part) * batch_s, batch_s)
    assert phase.off_s(1_000.0, batch_s) == pytest.approx(off_part * batch_s, abs=1e-6)
    if abs(abs(off_part) - OFF_FRACTION) > 1e-6:
        assert phase.is_off(1_000.0, batch_s) == (abs(off_part) > OFF_FRACTION)


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_of_two_that_pause_at_the_same_time_one_moves(off: float, others_off: float) -> None:
    """R5: at once, however patient; and then they pause apart. Neither moves for less."""
    period_s, anchor, other_anchor = 10.0, 0.0, 5.0
    assume(abs(abs(off) - abs(others_off)) > 1e-6)

    def running(began: float) -> Phase:
        phase = Phase(period_s, patient=True)
        for _ in range(4):
            phase.begin(period_s, realigned=True)
        for batch_id in range(PATIENT_BATCHES):
            assert not phase.is_in_the_way(anchor, phase, period_s), "of fewer batches it cannot tell"
            phase.ended(batch_id, began + batch_id * period_s, period_s)
        return phase

    one, other = running(anchor + off * period_s), running(other_anchor + others_off * period_s)
    apart = abs((off - others_off + 1.0) % 1.0 - 0.5)
    assume(abs(apart - OFF_FRACTION) > 1e-6)
    ways = [one.is_in_the_way(anchor, other, period_s)]
    ways.append(other.is_in_the_way(other_anchor, one, period_s))
    assert ways == ([abs(off) > abs(others_off), abs(off) < abs(others_off)] if apart < OFF_FRACTION else [False] * 2)
    if any(ways):
        remaining = others_off if ways[0] else off
        assert abs(0.5 - abs(remaining)) > OFF_FRACTION, "the one that stays is not where the other's moment is"


@given(batches, st.floats(-0.49, 0.49), st.floats(0, 0.09))
def test_where_a_router_begins_is_known_as_soon_as_it_flows(batch_s: float, off_part: float, pause_part: float) -> None:
    """Its peer's next pause is less than a batch away: no time to wait for an end of its own."""
    phase = Phase(batch_s, pause_s=pause_part * batch_s)
    phase.begin(batch_s)
    assert not phase.is_off(1_000.0, batch_s), "nothing is known yet"
    phase.flows(1_000.0 + off_part * batch_s + phase.pause_s)
    phase.flows(2_000.0)  # told again: nothing new
    assert phase.off_s(1_000.0, batch_s) == pytest.approx(off_part * batch_s, abs=1e-6)
    if abs(abs(off_part) - OFF_FRACTION) > 1e-6:
        assert phase.is_off(1_000.0, batch_s) == (abs(off_part) > OFF_FRACTION)


def test_the_first_batch_of_all_teaches_no_pause() -> None:
    """It plans in a JVM that has just begun; the next would be cut short for nothing."""
    phase = Phase(10.0)
    phase.begin(10.0)
    phase.ended(0, 0.0, 14.0)
    assert phase.pause_s == 0.0
    assert phase.period_s == 10.0
    phase.ended(1, 14.0, 10.5)
    assert phase.pause_s == 0.5


@given(st.floats(0.0, 4.0), st.floats(0.1, 0.9))
def test_what_a_start_takes_is_learned(start_s: float, pause_s: float) -> None:
    """R5: on a slow machine too a router that keeps to the clock comes into phase after a few realignments."""
    phase, now, realigned = Phase(10.0, patient=True), 3.0, 0
    trigger_s = phase.begin(10.0)
    for batch_id in range(200):
        phase.ended(batch_id, now, trigger_s + pause_s)
        now += trigger_s + pause_s
        phase.learn(0.0, 10.0)
        if phase.is_off(0.0, 10.0):
            realigned += 1
            assert batch_id < 100, "it is not realigned for ever"
            trigger_s = phase.begin(10.0, realigned=True)
            now = next_start(now + phase.lead_s, 10.0, 0.0) - phase.lead_s + start_s
    assert realigned <= 5


def test_where_realigning_does_not_help_it_is_done_ever_less() -> None:
    """Each time is a pause, and a batch done again."""
    phase, batches, counts = Phase(10.0, patient=True), 0, []
    phase.begin(10.0)
    for batch_id in range(400):
        batches += 1
        phase.ended(batch_id, 5.0 + 10.0 * batch_id, 10.0)
        if phase.is_off(0.0, 10.0):
            counts.append(batches)
            batches = 0
            phase.begin(10.0, realigned=True)
    assert counts[:6] == [2, 4, 8, 16, 32, 32]


class Simulated:
    """A query whose batches last `trigger_s` and the next of its pauses."""

    def __init__(self, pauses: list[float], began: float) -> None:
        self.phase = Phase(10.0)
        self.pauses = iter(pauses)
        self.paused: list[tuple[float, float]] = []
        self.batch_id = -1
        self.start(began, 10.0)

    def start(self, began: float, period_s: float, realigned: bool = False) -> None:
        self.trigger_s = self.phase.begin(period_s, realigned)
        self._next(began)
        self.phase.flows(began + self.pause_s)

    def end(self) -> None:
        self.paused.append((self.ends - self.pause_s, self.ends))
        self.phase.ended(self.batch_id, self.began, self.trigger_s + self.pause_s)
        self._next(self.ends)

    def _next(self, began: float) -> None:
        self.pause_s = next(self.pauses)
        self.batch_id, self.began, self.ends = self.batch_id + 1, began, began + self.trigger_s + self.pause_s


@given(st.lists(st.floats(0.2, 2.0), min_size=200, max_size=200), st.floats(0, 10))
def test_the_pauses_of_a_pair_do_not_meet(pauses: list[float], lead_s: float) -> None:
    """R5: wherever the backup begins, once it has been realigned its pauses stay clear of the active's."""
    active, backup = Simulated(pauses[::2], 0.0), Simulated(pauses[1::2], lead_s)
    settled_at = 2 * 10.0
    while active.batch_id < 60:
        first = min(active, backup, key=lambda query: query.ends)
        now = first.ends
        first.end()
        assert active.phase.began is not None
        period_s = active.phase.period_s
        anchor = active.phase.began + period_s / 2
        at = next_start(now, period_s, anchor)
        if backup.phase.is_off(anchor, period_s) and at < min(active.ends, backup.ends):
            backup.start(at, period_s, realigned=True)
    met = [(a, b) for a in active.paused for b in backup.paused if a[0] > settled_at and a[0] < b[1] and b[0] < a[1]]
    assert not met
