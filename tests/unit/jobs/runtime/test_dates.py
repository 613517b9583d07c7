"""Dates as people give them to commands."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.runtime.dates import parse_date


@given(st.dates())
def test_a_date_is_read_as_it_is_written(day: date) -> None:
    assert parse_date(day.isoformat()) == day


@given(st.dates(min_value=date(2, 1, 1)))
def test_today_and_yesterday(today: date) -> None:
    assert parse_date("today", today) == today
    assert parse_date(" Yesterday", today) == today - timedelta(days=1)


@pytest.mark.parametrize("text", ["", "2026-13-01", "20261122", "2026-11-22T08:00", "22.11.2026", "tomorrow", "to day"])
def test_what_is_none_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date: write 2026-11-22, today or yesterday"):
        parse_date(text)
