"""Which bundle goes over which bearer (M4)."""

from hypothesis import given
from hypothesis import strategies as st

from edge.uplink.bearers import Bearer, BearerState, may_take


def state(name: str, priority: int = 0, *, after_s: float = 0.0, up: bool = True, busy: bool = False) -> BearerState:
    return BearerState(Bearer(name, "http://gateway", priority=priority, after_s=after_s), up, busy)


def takers(*states: BearerState, waited_s: float = 0.0, is_urgent: bool = False) -> list[str]:
    return [
        one.bearer.name for one in states if not one.is_busy and may_take(one, states, waited_s, is_urgent=is_urgent)
    ]


def test_the_best_that_is_up_is_used() -> None:
    """M4."""
    assert takers(state("lan"), state("lte", 1)) == ["lan"]
    assert takers(state("lan", up=False), state("lte", 1)) == ["lte"]
    assert takers(state("lan", busy=True), state("lte", 1)) == [], "it only takes over"


def test_bearers_of_the_same_rank_share() -> None:
    assert takers(state("lan"), state("wifi")) == ["lan", "wifi"]


def test_a_costlier_one_joins_for_what_has_waited() -> None:
    """M4."""
    lan, satellite = state("lan", busy=True), state("satellite", 2, after_s=60)
    assert takers(lan, satellite, waited_s=59) == []
    assert takers(lan, satellite, waited_s=60) == ["satellite"]
    assert takers(state("lan"), satellite, waited_s=60) == ["lan"], "as long as the better one is free"
    assert takers(state("lan", up=False), satellite, waited_s=59) == [], "not before its time"
    assert takers(state("lan", up=False), satellite, waited_s=60) == ["satellite"]


def test_an_urgent_message_does_not_wait() -> None:
    satellite = state("satellite", 2, after_s=60)
    assert takers(state("lan", up=False), satellite, is_urgent=True) == ["satellite"]
    assert takers(state("lan", busy=True), satellite, is_urgent=True) == ["satellite"]
    assert takers(state("lan"), satellite, is_urgent=True) == ["lan"]


STATES = st.lists(
    st.builds(
        BearerState,
        st.builds(
            Bearer,
            st.uuids().map(str),
            st.just("http://gateway"),
            priority=st.integers(0, 2),
            cost=st.sampled_from([0.0, 1.0]),
            after_s=st.sampled_from([0.0, 10.0, 100.0]),
        ),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(STATES, st.floats(0, 200), st.booleans())
def test_never_before_its_time_and_never_starving(states: list[BearerState], waited_s: float, is_urgent: bool) -> None:
    """M4."""
    takers = [one for one in states if not one.is_busy and may_take(one, states, waited_s, is_urgent=is_urgent)]
    for one in takers:
        assert one.is_up
        assert is_urgent or waited_s >= one.bearer.after_s
        better = [other for other in states if other.bearer.rank < one.bearer.rank]
        assert not any(may_take(other, states, waited_s, is_urgent=is_urgent) and not other.is_busy for other in better)
    up = [one for one in states if one.is_up]
    idle = [BearerState(one.bearer, one.is_up) for one in states]
    if up:  # with patience, and when the others have finished, somebody takes it: the best that is up
        last = [one for one in idle if may_take(one, idle, 200.0, is_urgent=False)]
        assert {one.bearer.rank for one in last} == {min(one.bearer.rank for one in up)}
