"""The broker's time is estimated from heartbeats (G14)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.broker_clock import BrokerClock


def test_before_the_first_heartbeat_it_is_this_machines_time() -> None:
    assert BrokerClock(lambda: 12.5).ms(100.0) == 12_500


@given(
    ahead_s=st.floats(-100, 100),
    beats=st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 0.5)), min_size=1, max_size=200),
    later_s=st.floats(0, 5),
)
def test_it_is_never_ahead_of_the_broker_and_hardly_behind(
    ahead_s: float, beats: list[tuple[float, float]], later_s: float
) -> None:
    """`ahead_s`: by how much the broker's clock differs from the gateway's; each beat: the pause before it, and how
    long it takes from the broker to the gateway."""
    clock = BrokerClock(lambda: 0.0)
    now = 1_000.0
    for pause_s, way_s in beats:
        now += pause_s
        clock.heard(int((now + ahead_s) * 1000), now + way_s)
    now += 0.5 + later_s
    quickest_s = min(way_s for _, way_s in beats[-64:])
    behind_ms = (now + ahead_s) * 1000 - clock.ms(now)
    assert -0.01 <= behind_ms <= quickest_s * 1000 + 2.01
