"""The trend of the quality pages says what it shows (R11)."""

from datetime import date, timedelta

from jobs.quality.trend import MOST_DATES, TrendDay, trend

FIRST = date(2026, 3, 1)


def days(count: int) -> list[TrendDay]:
    return [
        TrendDay(FIRST + timedelta(n), n % 3 == 0, float(n) if n % 4 else None, None if n == 1 else 2.0 * n)
        for n in range(count)
    ]


def test_the_trend_says_what_it_shows() -> None:
    """Of the newest dates; some have no latency, and there may be many."""
    assert 'aria-label="Latencies and failed expectations by date: 2 of 5 dates failed."' in trend(days(5))
    assert f"20 of {MOST_DATES} dates failed" in trend(days(100))
    nothing = [TrendDay(FIRST + timedelta(n), 0, None, None) for n in range(2)]
    assert "0 of 2 dates failed" in trend(nothing)
