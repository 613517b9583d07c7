"""What one member does about leases: claims in turn, read-back, moves, drains, stalls (G4, G6, G14, Q6, Q7, Q8, Q9)."""

from collections.abc import Iterable

import pytest

from gateway.cluster import lease_messages as m
from gateway.cluster.claimant import BackOff
from gateway.cluster.lease_keeper import LeaseKeeper
from gateway.cluster.lease_table import LeaseTable
from gateway.cluster.life import Heard, Life, LinkEnded, Passed, RedialResult
from gateway.cluster.placement import Candidate, ranking
from gateway.cluster.timings import LeaseTimings, LifeTimings
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Release, Standbys

ME, B, C = Claimant("a", 1), Claimant("b", 1), Claimant("c", 1)
TIMINGS = LeaseTimings()


class Member:
    """The keeper of `ME` with a log of its own; time passes in steps of 50 ms, and `living` write to `members`."""

    def __init__(self, shards: int = 1, living: Iterable[Claimant] = (ME, B), standbys: int = 1) -> None:
        self.life = Life(ME, LifeTimings())
        self.table = LeaseTable(shards)
        self.keeper = LeaseKeeper(ME, self.table, self.life, TIMINGS, standbys)
        self.living = list(living)
        self.state = "up"
        self.now = 0.0
        self.offset = 0
        self.seq = 0
        self.effects: list[m.LeaseEffect] = []

    def tell(self, event: m.LeaseEvent) -> list[m.LeaseEffect]:
        effects = self.keeper.step(event, self.now)
        self.effects += effects
        return effects

    def reads(self, key: LeaseKey, value: LeaseValue | None) -> list[m.LeaseEffect]:
        self.offset += 1
        return self.tell(m.LeaseRead(self.offset, key, value))

    def claims(self, claimant: Claimant, epoch: int, shard: int = 0) -> list[m.LeaseEffect]:
        return self.reads(LeaseKey("c", shard, epoch, claimant), Claim())

    def passes(self, seconds: float) -> list[m.LeaseEffect]:
        found: list[m.LeaseEffect] = []
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            self.seq += 1
            self.life.step(Passed(), self.now)
            for each in self.living:
                state = self.state if each == ME else "up"
                self.life.step(Heard(each.name, each.boot, self.seq, state), self.now)  # type: ignore[arg-type]
            found += self.tell(m.Tick())
        return found

    def starts(self) -> "Member":
        self.passes(0.1)
        self.tell(m.CaughtUp())
        return self

    def serves(self, epoch: int = 1, standby: str = "b", shard: int = 0) -> "Member":
        self.claims(ME, epoch, shard)
        for effect in self.tell(m.Fenced(shard, epoch)):
            if isinstance(effect, m.WriteLease):
                self.reads(effect.key, effect.value)
        self.reads(LeaseKey("s", shard, epoch, ME), Standbys(names=[standby]))
        return self


def written(effects: Iterable[m.LeaseEffect], kind: type = Claim) -> list[LeaseKey]:
    return [each.key for each in effects if isinstance(each, m.WriteLease) and isinstance(each.value, kind)]


def claim_of(epoch: int, shard: int = 0) -> LeaseKey:
    return LeaseKey("c", shard, epoch, ME)


def test_nothing_is_claimed_before_the_log_is_read() -> None:
    member = Member(living=[ME])
    assert member.passes(1.0) == []
    member.tell(m.CaughtUp())
    assert written(member.passes(0.1)) == [claim_of(1)]


def test_a_shard_begins_once_the_claim_is_read_back_and_has_won() -> None:
    member = Member(living=[ME]).starts()
    assert written(member.passes(0.5)) == [claim_of(1)], "once, while it is on its way"
    assert not [each for each in member.effects if isinstance(each, m.Begin)]
    assert member.claims(ME, 1) == [m.Begin(0, 1)]
    assert (member.keeper.phase(0), member.keeper.owned(0)) == ("starting", 1)
    other = Member(living=[ME]).starts()
    other.passes(0.5)
    other.claims(B, 1)
    assert other.claims(ME, 1) == []
    assert other.keeper.owned(0) == 0


def test_a_higher_claim_ends_the_shard_here_and_a_lower_one_does_not() -> None:
    member = Member().starts().serves(3)
    assert member.claims(B, 2) == member.claims(B, 3) == []
    assert member.claims(B, 4) == [m.End(0, 3)]
    assert member.keeper.phase(0) == "idle"


def test_claims_follow_in_turn_the_first_standby_at_once() -> None:
    waits = {}
    for standbys in (["a", "c"], ["c", "a"], ["c"]):
        member = Member(living=[ME, B, C]).starts()
        member.claims(B, 1)
        member.reads(LeaseKey("s", 0, 1, B), Standbys(names=standbys))
        member.living.remove(B)
        member.passes(0.55)
        while not written(member.passes(0.05)):
            assert member.now < 5.0
        waits[tuple(standbys)] = member.now
    assert waits["c", "a"] - waits["a", "c"] == pytest.approx(TIMINGS.rank_s)
    assert waits["c",] == waits["c", "a"], "behind the standbys come the others, by rank"


def test_a_suspect_standby_is_passed_over() -> None:
    member = Member(living=[ME, B, C]).starts()
    member.claims(B, 1)
    member.reads(LeaseKey("s", 0, 1, B), Standbys(names=["c", "a"]))
    member.living = [ME]
    assert written(member.passes(0.7)) == [claim_of(2)]


def test_who_reads_nothing_claims_nothing() -> None:
    member = Member().starts()
    member.claims(B, 1)
    member.living = []
    assert member.passes(5.0) == []


def test_an_owner_that_writes_no_fences_is_suspect() -> None:
    member = Member().starts()
    member.claims(B, 1)
    assert member.passes(TIMINGS.fence_s - 0.1) == []
    assert written(member.passes(0.6)) == [claim_of(2)]


def test_the_epoch_is_above_all_claims_fences_and_own_tries() -> None:
    member = Member(living=[ME]).starts()
    member.tell(m.FenceRead(0, 7))
    assert written(member.passes(0.1)) == [claim_of(8)]
    assert written(member.passes(1.0)) == []
    member.tell(m.WriteFailed(0, 8))
    assert written(member.passes(1.0)) == [claim_of(9)], "nobody knows whether the other one is there"


def test_an_owner_that_meets_a_fence_as_high_as_its_own_claims_again() -> None:
    member = Member(living=[ME]).starts()
    member.claims(ME, 1)
    member.tell(m.FenceRead(0, 4))
    assert written(member.tell(m.Outranked(0, 1))) == [claim_of(5)]
    assert member.claims(ME, 5) == [m.End(0, 1), m.Begin(0, 5)]


def test_repeated_claims_back_off_and_calm_ends_that() -> None:
    back_off, waits, now = BackOff(), [], 0.0
    for _ in range(40):
        back_off = back_off.claimed(now, TIMINGS)
        waits.append(back_off.not_before - now)
    assert waits[:3] == [TIMINGS.backoff_s * 2**n for n in range(3)]
    assert max(waits) == TIMINGS.longest_backoff_s
    member = Member(living=[ME]).starts()
    times = []
    for epoch in (1, 3, 5, 7, 9, 11):
        while not written(member.passes(0.05)):
            assert member.now < 30.0
        times.append(member.now)
        member.claims(B, epoch + 1)  # who is not alive
    assert times[-1] - times[-2] > 4 * (times[1] - times[0])


def test_the_owner_names_standbys_and_removes_what_lower_epochs_left() -> None:
    member = Member(living=[ME, B]).starts()
    member.claims(B, 1)
    member.claims(ME, 2)
    effects = member.tell(m.Fenced(0, 2))
    assert effects == [
        m.WriteLease(LeaseKey("s", 0, 2, ME), Standbys(names=["b"])),
        m.WriteLease(LeaseKey("c", 0, 1, B), None),
    ]
    assert member.tell(m.Fenced(0, 1)) == [], "of another epoch"


def test_a_standby_that_is_lost_is_replaced() -> None:
    """Q8."""
    member = Member(living=[ME, B, C]).starts().serves(standby="b")
    member.living.remove(B)
    named = [each for each in member.passes(2.0) if isinstance(each, m.WriteLease)]
    assert named[0] == m.WriteLease(LeaseKey("s", 0, 1, ME), Standbys(names=["c"]))


def test_standbys_follow_and_unfollow() -> None:
    member = Member().starts()
    member.claims(B, 1)
    assert member.reads(LeaseKey("s", 0, 1, B), Standbys(names=["a"])) == [m.Follow(0)]
    assert member.reads(LeaseKey("s", 0, 1, B), Standbys(names=["c"])) == [m.Unfollow(0)]
    member.reads(LeaseKey("s", 0, 1, B), Standbys(names=["a"]))
    assert member.claims(C, 2) == [], "it goes on until the new owner has named its own"
    assert member.claims(ME, 3) == [m.Begin(0, 3)], "what it followed is its own now"


def test_what_is_due_is_claimed_before_the_next_tick() -> None:
    """Q7, Q9: by the successor of a released shard, and by the first standby of one whose owner is dead; by nobody
    else, and not by one that drains or has not read the log."""
    for successor, claimed in (("a", [claim_of(3)]), ("b", [])):
        member = Member(living=[ME, B, C]).starts()
        member.claims(C, 1)
        member.passes(TIMINGS.calm_s)
        member.reads(LeaseKey("c", 0, 2, C), Release(successor=successor))
        assert written(member.tell(m.Due())) == claimed
        assert written(member.tell(m.Due())) == [], "it is on its way"
    for standby, claimed in (("a", [claim_of(2)]), ("b", [])):
        member = Member(living=[ME, B, C]).starts()
        member.claims(C, 1)
        member.reads(LeaseKey("s", 0, 1, C), Standbys(names=[standby]))
        member.passes(TIMINGS.calm_s)
        assert written(member.tell(m.Due())) == [], "its owner lives"
        member.life.step(LinkEnded("c"), member.now)
        member.life.step(RedialResult("c", "refused"), member.now)
        assert written(member.tell(m.Due())) == claimed
    drains, begins = Member(living=[ME, B, C]).starts(), Member(living=[ME, B, C])
    drains.tell(m.Drain())
    begins.passes(0.1)
    for member in (drains, begins):
        member.reads(LeaseKey("c", 0, 2, C), Release(successor="a"))
        assert written(member.tell(m.Due())) == []


def test_the_successor_claims_at_once_and_others_wait() -> None:
    for successor, wait in (("a", 0.0), ("b", 2 * TIMINGS.successor_s)):
        member = Member(living=[ME, B, C]).starts()
        member.claims(C, 1)
        member.reads(LeaseKey("s", 0, 1, C), Standbys(names=["a"]))
        member.reads(LeaseKey("c", 0, 2, C), Release(successor=successor))
        began = member.now
        while not written(member.passes(0.05)):
            assert member.now < 5.0
        assert member.now - began == pytest.approx(wait, abs=0.06)


def test_a_drained_member_gives_up_all_shards_and_claims_none() -> None:
    member = Member(shards=3).starts()
    for shard in range(3):
        member.serves(shard=shard)
    member.state = "draining"
    effects = member.tell(m.Drain())
    assert len([each for each in effects if isinstance(each, m.Freeze)]) == 2, "some at a time"
    for _ in range(6):
        for effect in list(member.effects):
            if isinstance(effect, m.Freeze) and member.keeper.phase(effect.shard) == "freezing":
                [release] = member.tell(m.Frozen(effect.shard, effect.epoch))
                assert isinstance(release, m.WriteLease)
                assert release.value == Release(successor="b")
                member.reads(release.key, release.value)
        member.passes(0.2)
    assert [each for each in member.effects if isinstance(each, m.Drained)] == [m.Drained()]
    assert written(member.passes(3.0)) == []


def test_a_member_that_stays_keeps_its_shards_until_another_can_take_them() -> None:
    """It says so once. Being stopped, it keeps none."""
    member = Member(shards=2, living=[ME]).starts()
    for shard in range(2):
        member.serves(shard=shard)
    member.state = "draining"
    assert member.tell(m.Drain(stays=True)) == [m.DrainWaits()]
    assert [each for each in member.passes(3.0) if not isinstance(each, m.WriteLease)] == []
    member.living = [ME, B]
    assert [each for each in member.passes(0.1) if isinstance(each, m.Freeze)] == [m.Freeze(0, 1), m.Freeze(1, 1)]
    assert [member.keeper.successor(shard) for shard in range(2)] == ["b", "b"]
    stopped = Member(living=[ME]).starts().serves()
    stopped.state = "draining"
    assert stopped.tell(m.Drain(stays=True)) == [m.DrainWaits()]
    assert stopped.tell(m.Drain()) == [m.Freeze(0, 1)]
    assert stopped.tell(m.Drain(stays=True)) == [], "too late"
    assert stopped.tell(m.Frozen(0, 1)) == [m.WriteLease(claim_of(2), Release())]


def test_a_member_that_stays_takes_back_what_its_successor_does_not_claim() -> None:
    """That may have begun to drain at the same moment. A member that is being stopped takes nothing back."""
    for stays, claimed in ((True, [claim_of(3)]), (False, [])):
        member = Member(living=[ME, B]).starts().serves()
        member.state = "draining"
        assert member.tell(m.Drain(stays=stays)) == [m.Freeze(0, 1)]
        [release] = member.tell(m.Frozen(0, 1))
        assert isinstance(release, m.WriteLease)
        member.reads(release.key, release.value)
        member.living = [ME]
        effects = member.passes(TIMINGS.successor_s + 0.1)
        assert written(effects) == claimed
        assert (m.Drained() in effects) is not stays


def test_a_loop_that_stood_still_verifies_before_it_sends() -> None:
    member = Member().starts().serves()
    member.now += TIMINGS.verify_s + 0.1
    assert member.tell(m.Tick())[:2] == [m.Hold(), m.Verify()]
    assert member.claims(B, 2) == [m.End(0, 1)]
    assert member.passes(0.5) == [], "it claims nothing meanwhile"
    assert member.tell(m.Verified()) == [m.Resume()]
    assert member.tell(m.Verified()) == []


def test_a_shard_begins_after_a_verification() -> None:
    member = Member().starts().serves()
    member.now += TIMINGS.verify_s + 0.1
    member.tell(m.Tick())
    assert member.claims(ME, 2) == [m.End(0, 1)]
    assert member.tell(m.Verified()) == [m.Resume(), m.Begin(0, 2)]


def test_a_claim_that_is_read_late_is_verified() -> None:
    """Compaction may have removed the earlier claim of its epoch that has won, and what followed it stands behind."""
    member = Member(living=[ME]).starts()
    assert written(member.passes(0.5)) == [claim_of(1)]
    member.passes(TIMINGS.verify_again_s + 1)
    assert member.claims(ME, 1) == [m.Hold(), m.Verify()]
    member.claims(B, 2)
    assert member.tell(m.Verified()) == [m.Resume()]
    assert member.keeper.owned(0) == 0


def test_a_verification_that_took_long_is_repeated() -> None:
    member = Member().starts().serves()
    member.now += TIMINGS.verify_s + 0.1
    member.tell(m.Tick())
    member.passes(TIMINGS.verify_again_s + 1)
    assert member.tell(m.Verified()) == [m.Verify()]
    assert member.tell(m.Verified()) == [m.Resume()]


def test_shards_move_to_a_member_that_has_joined_one_at_a_time() -> None:
    """Q9: first it is a standby, and then the owner."""
    member = Member(shards=4, living=[ME, B]).starts()
    for shard in range(4):
        member.serves(shard=shard)
    named = [each for each in member.passes(TIMINGS.settle_s + 1.5) if isinstance(each, m.WriteLease)]
    assert not [each for each in member.effects if isinstance(each, m.Freeze)], "its standby is not ready"
    assert all(each.value == Standbys(names=["b"]) for each in named)
    for shard in range(4):
        member.tell(m.StandbyReady(shard, "b"))
    assert len([each for each in member.effects if isinstance(each, m.Freeze)]) == 1


def test_ranks_are_those_of_placement() -> None:
    """Nobody is left of the standbys: the first of the ranking claims first."""
    member = Member(shards=8, living=[ME, B]).starts()
    firsts = {shard for shard in range(8) if ranking(shard, [Candidate("a"), Candidate("b")])[0].name == "a"}
    assert {key.shard for key in written(member.passes(0.1))} == firsts
    assert {key.shard for key in written(member.passes(0.3))} == set(range(8)) - firsts
