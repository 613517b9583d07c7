"""When a member leaves a start alone, and when it begins a shard of its own again."""

from collections.abc import Iterable

from gateway.cluster import lease_messages as m
from gateway.cluster.life import Heard
from schemas.leases import Claim
from tests.unit.gateway.cluster.test_lease_keeper import ME, TIMINGS, B, Member, claim_of, written


def claimed_epochs(effects: Iterable[m.LeaseEffect]) -> list[int]:
    return [e.key.epoch for e in effects if isinstance(e, m.WriteLease) and isinstance(e.value, Claim)]


def test_a_home_that_has_read_a_higher_fence_is_begun_again() -> None:
    """G6: if `leases` knows no claim of that epoch: above the fence, once."""
    one = Member().starts()
    one.claims(ME, 1)
    one.tell(m.Fenced(0, 1))
    assert claimed_epochs(one.tell(m.Superseded(0, 1, 7))) == [8]
    assert claimed_epochs(one.tell(m.Superseded(0, 1, 7))) == []
    effects = one.claims(ME, 8)
    assert [e for e in effects if isinstance(e, m.End | m.Begin)] == [m.End(0, 1), m.Begin(0, 8)]


def test_a_home_that_another_one_has_followed_claims_nothing() -> None:
    """G6: the claim was read meanwhile."""
    one = Member().starts()
    one.claims(ME, 1)
    one.tell(m.Fenced(0, 1))
    one.claims(B, 2)
    assert claimed_epochs(one.tell(m.Superseded(0, 1, 2))) == []


def claimed_after(member: Member, seconds: float, starting: tuple[int, ...]) -> bool:
    """Whether the member claims the shard within that time, while B says in each heartbeat what it starts."""
    found: list[m.LeaseEffect] = []
    for _ in range(round(seconds / 0.2)):
        member.seq += 1
        member.life.step(Heard(B.name, B.boot, member.seq, "up", starting=starting), member.now)
        found += member.passes(0.2)
    return bool(claimed_epochs(found))


def test_a_start_that_makes_progress_is_left_alone_within_a_limit() -> None:
    """Q7: as long as its heartbeats name the shard; then as long as any other; and not for ever."""
    one = Member().starts()
    one.claims(B, 1)
    assert not claimed_after(one, 10.0, (0, 7))
    assert not claimed_after(one, TIMINGS.fence_s - 0.4, ())
    assert claimed_after(one, 1.0, ())
    another = Member().starts()
    another.claims(B, 1)
    assert not claimed_after(another, TIMINGS.start_s - 1.0, (0,))
    assert claimed_after(another, 2.0, (0,))


def test_progress_with_another_shard_says_nothing() -> None:
    """Q7."""
    one = Member().starts()
    one.claims(B, 1)
    assert claimed_after(one, TIMINGS.fence_s + 1.0, (7,))


def test_a_shard_whose_start_failed_is_claimed_again_though_a_claim_could_not_be_written() -> None:
    member = Member(living=[ME]).starts()
    member.claims(ME, 1)
    [claim] = written(member.tell(m.Outranked(0, 1)))
    assert written(member.tell(m.WriteFailed(0, claim.epoch))) == [], "claims back off"
    assert written(member.passes(TIMINGS.longest_backoff_s)) == [claim_of(claim.epoch + 1)]


def test_a_shard_that_is_lost_to_nobody_is_claimed_again_though_a_claim_could_not_be_written() -> None:
    """Its lease is fenced and its owner alive: nobody else claims it."""
    member = Member(living=[ME, B]).starts().serves(1)
    [claim] = written(member.tell(m.Superseded(0, 1, 5)))
    member.tell(m.WriteFailed(0, claim.epoch))
    assert written(member.passes(TIMINGS.longest_backoff_s)) == [claim_of(claim.epoch + 1)]
