"""The clock by which messages age never goes back, and does not believe the wall clock while it can measure (M2)."""

from hypothesis import given
from hypothesis import strategies as st

from edge.client.store_clock import DOWN_MOST_S, StoreClock, running_s

moments = st.floats(0, 1e10)


@given(st.lists(st.tuples(moments, moments, st.floats(0, 1e6)), min_size=1, max_size=10))
def test_over_any_processes_and_any_wall_clock(processes: list[tuple[float, float, float]]) -> None:
    """(wall clock at the start, running time at the start, duration) of each process."""
    clock_s, wall_s = 0.0, 0.0
    for wall_now_s, running_now_s, duration_s in processes:
        clock = StoreClock(clock_s, wall_s, wall_now_s, running_now_s, DOWN_MOST_S)
        started_s = clock.at(running_now_s)
        away_s = min(DOWN_MOST_S, max(0.0, wall_now_s - wall_s)) if wall_s else 0.0
        assert abs(started_s - (clock_s + away_s)) <= 1e-4
        ended_s = clock.at(running_now_s + duration_s)
        assert abs(ended_s - started_s - duration_s) <= 1e-4
        clock_s, wall_s = ended_s, wall_now_s + duration_s


def test_running_time_advances() -> None:
    assert running_s() <= running_s()
