"""How long a reader has been behind (Q7): never less than it is, and not much more."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.lag import APART_S, MOST, Lag


def test_who_has_read_all_is_not_behind() -> None:
    lag = Lag()
    assert lag.seconds(0, 5.0) == 0
    lag.heard(10, 5.0)
    assert lag.seconds(10, 9.0) == 0
    assert lag.seconds(12, 9.0) == 0, "its own reading is newer than what was heard of the end"


def test_who_is_behind_is_so_since_the_first_record_that_it_has_not_read() -> None:
    lag = Lag()
    for second in range(1, 6):
        lag.heard(10 * second, float(second))
    assert lag.seconds(0, 6.0) == 5.0
    assert lag.seconds(10, 6.0) == 4.0, "what comes behind the first end was heard of a second later"
    assert lag.seconds(41, 6.0) == 1.0
    assert lag.seconds(50, 7.0) == 0
    lag.heard(51, 8.0)
    assert lag.seconds(50, 8.5) == 0.5, "a pause is not counted"


@given(
    growth=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5)), max_size=200),
    read=st.floats(0, 1),
    later_s=st.floats(0, 10),
)
def test_it_is_never_less_than_it_is(growth: list[tuple[float, int]], read: float, later_s: float) -> None:
    """And as much as it is, but for what is noted as one. However many ends were heard, few are kept."""
    lag, end, now, first_heard = Lag(), 0, 0.0, dict[int, float]()
    for pause_s, records in growth:
        now += pause_s
        first_heard |= dict.fromkeys(range(end, end + records), now)
        end += records
        lag.heard(end, now)
        assert len(lag._ends) <= MOST
    position, now = int(read * end), now + later_s
    exact = now - first_heard[position] if position < end else 0.0
    found = lag.seconds(position, now)
    assert found >= exact - 1e-9
    if len(growth) <= MOST:
        assert found <= exact + APART_S
    assert (found == 0) >= (position == end)
