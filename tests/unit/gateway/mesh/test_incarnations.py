"""How many stores of originators a gateway takes messages of (M14)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.mesh.incarnations import Incarnations

KEPT_S = 100.0


@given(
    steps=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 60)), max_size=60),
    most=st.integers(1, 6),
    of_one=st.integers(1, 4),
)
def test_limits_hold_and_only_what_would_exceed_them_is_refused(
    steps: list[tuple[str, int, int]], most: int, of_one: int
) -> None:
    counted = Incarnations(most, of_one, KEPT_S)
    used: dict[tuple[str, int], float] = {}
    now = 0.0
    for originator, incarnation, wait_s in steps:
        now += wait_s
        before = len(counted)
        reason = counted.refusal(originator, incarnation, now)
        alive = [name for (name, _), at in used.items() if at + KEPT_S > now]
        if reason:
            assert alive.count(originator) >= of_one or len(alive) >= most
            assert used.get((originator, incarnation), -KEPT_S) + KEPT_S <= now
            assert len(counted) == len(alive) <= before
        else:
            used[originator, incarnation] = now
        assert len(counted) <= most


def test_what_the_shards_remember_counts_after_a_restart() -> None:
    known = [("a", 1, 10.0), ("a", 2, 20.0), ("a", 1, 5.0)]
    counted = Incarnations(10, 2, KEPT_S, known)
    assert counted.refusal("a", 3, 30.0)
    assert counted.refusal("a", 1, 30.0) == ""
    assert counted.refusal("a", 3, 120.0) == ""  # 2 is over
    assert counted.refusal("a", 4, 120.0)
