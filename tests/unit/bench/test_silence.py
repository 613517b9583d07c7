"""The arithmetic of silences, by which failover is measured."""

import pytest

from bench.subscriber import longest_silence_ms, pauses_ms


def test_a_silence_is_what_a_gap_has_beyond_the_interval() -> None:
    arrivals = [0.0, 0.1, 0.2, 0.7, 0.8]
    assert longest_silence_ms(arrivals, 0.1, 0.0, 1.0) == pytest.approx(400)
    assert longest_silence_ms(arrivals, 0.1, 0.0, 0.15) == pytest.approx(0, abs=1e-9)


def test_a_gap_counts_if_it_only_reaches_into_the_window() -> None:
    """What was killed may have been what the gap was waiting for."""
    assert longest_silence_ms([0.0, 1.0], 0.1, 0.9, 5.0) == pytest.approx(900)


def test_the_pause_of_a_period_is_its_longest_silence() -> None:
    arrivals = [n / 10 for n in range(101) if n not in (5, 25, 26, 27, 45, 65, 85)]
    assert pauses_ms(arrivals, 0.1, 2.0) == pytest.approx([100, 300, 100, 100, 100])
