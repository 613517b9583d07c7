"""Whether a bearer is up, by measurements, and when it is probed (M3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.reachability import Reachability, ReachabilityLimits

LIMITS = ReachabilityLimits(latency_s=1.0, good_to_come_up=2, bad_to_go_down=3)
OUTCOMES = st.lists(st.sampled_from(["good", "slow", "lost", "refused"]), max_size=40)


def reachability(limits: ReachabilityLimits = LIMITS) -> Reachability:
    return Reachability(limits, 0.0, lambda: 0.5)


def measured(at: Reachability, *outcomes: str, now: float = 0.0) -> Reachability:
    for outcome in outcomes:
        match outcome:
            case "good":
                at.answered(now, 0.1)
            case "slow":
                at.answered(now, 3.0)
            case "lost":
                at.failed(now, "no answer")
            case _:
                at.failed(now, "refused", is_certain=True)
    return at


def test_the_first_of_all_may_be_enough() -> None:
    """M3: for a peer of the mesh."""
    assert measured(Reachability(LIMITS, 0.0, one_is_enough=True), "good").is_up
    assert not measured(Reachability(LIMITS, 0.0, one_is_enough=True), "slow", "good").is_up


def test_several_good_ones_bring_it_up_and_several_bad_ones_down() -> None:
    """M3: hysteresis."""
    at = measured(reachability(), "good")
    assert not at.is_up
    assert measured(at, "good").is_up
    assert measured(at, "lost", "slow").is_up, "two bad ones are not enough"
    assert measured(at, "good", "lost", "slow").is_up, "they must come in sequence"
    assert not measured(at, "slow").is_up
    assert not measured(at, "good", "slow", "good").is_up


def test_too_much_latency_counts_as_not_reachable() -> None:
    """M3."""
    at = measured(reachability(), "good", "good", "slow", "slow", "slow")
    assert not at.is_up
    assert at.last_problem == "the round trip takes 3.0 s, more than 1 s"
    assert not measured(reachability(), *["slow"] * 10).is_up
    assert measured(reachability(ReachabilityLimits()), "slow", "slow").is_up, "without a threshold"


def test_a_certain_failure_brings_it_down_at_once() -> None:
    assert not measured(reachability(), "good", "good", "refused").is_up


def test_round_trip_and_loss_are_smoothed() -> None:
    at = measured(reachability(), "good", "good", "slow")
    assert at.round_trip_s == pytest.approx(0.1 + (3.0 - 0.1) / 8)
    assert at.loss == pytest.approx(1 / 8)


def test_probes_come_sooner_in_doubt_and_more_rarely_while_it_is_down() -> None:
    at = measured(reachability(), "good", "good", now=100.0)
    assert at.next_probe == 130.0
    assert measured(at, "lost", now=101.0).next_probe < 103.0
    waits = []
    for _ in range(10):
        measured(at, "refused", now=200.0)
        waits.append(at.next_probe - 200.0)
    assert waits == sorted(waits)
    assert waits[-1] == 30.0, "full jitter: a half of the most, as drawn"
    at.network_changed(200.0)
    assert at.next_probe <= 200.5
    assert measured(at, "refused", now=201.0).next_probe < 203.0, "and the pauses begin again"


@given(OUTCOMES)
def test_it_never_probes_without_a_pause_and_is_up_only_after_good_ones(outcomes: list[str]) -> None:
    at, now = reachability(), 0.0
    for outcome in outcomes:
        was_up = at.is_up
        measured(at, outcome, now=now)
        assert at.next_probe >= now + 0.5
        assert not (at.is_up and not was_up and outcome != "good")
        now = at.next_probe
    tail = outcomes[-3:]
    assert not (at.is_up and len(tail) == 3 and "good" not in tail)
    assert not (at.is_up and outcomes[-1] == "refused")
    assert measured(at, "good", "good").is_up
