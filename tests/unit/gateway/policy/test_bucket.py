"""Token buckets: never more than burst and rate allow, never less (Q12)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.bucket import BucketsByClient, TokenBucket


class Holder:
    """Whoever uses a bucket."""


LATE = 1e6
"""A clock that has run for days."""

moments = st.lists(st.tuples(st.floats(0, 5), st.integers(1, 40)), max_size=200)


@given(steps=moments, per_s=st.floats(0.1, 1_000), burst=st.integers(1, 100))
def test_a_bucket_gives_as_much_as_one_that_counts_tokens(
    steps: list[tuple[float, int]], per_s: float, burst: int
) -> None:
    """Q12: against the plain reference; a take that needs more than the bucket holds needs a full one."""
    bucket, now, tokens = TokenBucket(per_s, burst), LATE, float(burst)
    for pause_s, wanted in steps:
        now += pause_s
        tokens = min(burst, tokens + pause_s * per_s)
        missing = min(wanted, burst) - tokens
        if abs(missing) > 1e-2:  # else rounding decides
            assert bucket.has(now, wanted) == (missing < 0)
        if bucket.has(now, wanted):
            bucket.take(now, wanted)
            tokens -= wanted


def test_what_is_owed_is_made_up_for() -> None:
    """Q12: the long run is what is configured, however much came at once."""
    bucket = TokenBucket(10, 5)
    assert bucket.is_full(LATE)
    for _ in range(25):
        bucket.take(LATE)
    assert abs(bucket.owed_s(LATE) - 2.0) < 1e-6
    assert not bucket.has(LATE + 2.0)
    assert bucket.has(LATE + 2.1)
    assert not bucket.is_full(LATE + 2.1)
    assert bucket.is_full(LATE + 2.6)


def test_no_rate_is_no_limit() -> None:
    bucket = TokenBucket(0, 1)
    for _ in range(1_000):
        assert bucket.has(LATE, 1e12)
        bucket.take(LATE, 1e12)
    assert bucket.owed_s(LATE) <= 0
    assert bucket.is_full(LATE)


def test_who_comes_back_owes_what_it_owed_and_the_others_are_forgotten() -> None:
    """Q12: memory is bounded by clients that owe something, and by those that are here."""
    buckets, here = BucketsByClient(lambda: TokenBucket(1, 10)), Holder()
    for _ in range(10):
        buckets.of("guilty", LATE).take(LATE)
    idle = buckets.of("idle", LATE)
    buckets.hold("idle", here)
    for n in range(5_000):
        buckets.of(f"client {n}", LATE)
    assert len(buckets) <= 1_001
    assert not buckets.of("guilty", LATE).has(LATE)
    assert buckets.of("idle", LATE) is idle
    del here
    for n in range(250_000):
        buckets.of(f"guilty {n}", LATE).take(LATE)
    assert len(buckets) <= 150_000
    assert buckets.of("idle", LATE) is not idle
