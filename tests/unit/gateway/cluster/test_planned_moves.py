"""Planned moves of a shard, by the keepers of both members (Q9)."""

from gateway.cluster import lease_messages as m
from gateway.cluster.life import Heard, LinkEnded, RedialResult
from gateway.cluster.timings import LifeTimings
from schemas.leases import MOST_STANDBYS, Claimant, LeaseKey, Release, Standbys, decode_lease, encode_lease
from tests.unit.gateway.cluster.test_lease_keeper import ME, TIMINGS, B, C, Member, claim_of, written


def test_a_planned_move_freezes_writes_and_names_the_successor() -> None:
    member = Member().starts().serves()
    assert [each for each in member.tell(m.MoveTo(0, "b")) if isinstance(each, m.Freeze)] == []
    assert member.tell(m.StandbyReady(0, "b")) == [m.Freeze(0, 1)]
    [release] = member.tell(m.Frozen(0, 1))
    assert release == m.WriteLease(claim_of(2), Release(successor="b"))
    assert member.reads(release.key, release.value) == [m.End(0, 1)]
    assert member.claims(B, 3) == []


def test_a_shard_does_not_move_to_a_standby_that_has_fallen_behind() -> None:
    """Q9: it moves once the standby has caught up again."""
    member = Member().starts().serves()
    member.tell(m.StandbyReady(0, "b"))
    member.tell(m.StandbyNotReady(0, "b"))
    assert [each for each in member.tell(m.MoveTo(0, "b")) if isinstance(each, m.Freeze)] == []
    assert member.tell(m.StandbyNotReady(0, "b")) == [], "told twice"
    assert member.tell(m.StandbyReady(0, "b")) == [m.Freeze(0, 1)]
    assert member.tell(m.StandbyNotReady(0, "b")) == [], "too late: the move goes on"
    assert member.tell(m.Frozen(0, 1)) == [m.WriteLease(claim_of(2), Release(successor="b"))]


def test_a_shard_moves_to_a_member_that_is_known_only_since_the_last_tick() -> None:
    """Its heartbeat is read, and an operator asks at once."""
    member = Member(living=[ME]).starts().serves()
    member.life.step(Heard("b", B.boot, 1, "up"), member.now)
    member.tell(m.MoveTo(0, "b"))
    assert member.tell(m.StandbyReady(0, "b")) == [m.Freeze(0, 1)]


def test_a_move_outlasts_a_short_silence_of_the_member_to_which_it_goes() -> None:
    """Q9: but the shard does not go there meanwhile."""
    member = Member(living=[ME, B, C]).starts().serves()
    member.tell(m.MoveTo(0, "b"))
    member.living = [ME, C]
    member.passes(LifeTimings().silent_s + 0.2)
    assert member.keeper.successor(0) == "b"
    assert member.tell(m.StandbyReady(0, "b")) == []
    member.living = [ME, B, C]
    assert [each for each in member.passes(0.1) if not isinstance(each, m.WriteLease)] == [m.Freeze(0, 1)]


def test_a_move_to_a_member_that_is_lost_is_given_up() -> None:
    member = Member(living=[ME, B, C]).starts().serves()
    member.tell(m.MoveTo(0, "b"))
    member.living = [ME, C]
    effects = member.passes(LifeTimings().silent_s + TIMINGS.settle_s + 0.2)
    assert [each for each in effects if isinstance(each, m.MoveGivenUp)] == [m.MoveGivenUp(0, "b", is_lost=True)]
    assert member.keeper.successor(0) == ""
    member.living = [ME, B, C]
    member.passes(0.2)
    assert member.tell(m.StandbyReady(0, "b")) == []


def test_a_move_to_a_member_that_never_becomes_warm_is_given_up() -> None:
    """Its disk may be full. Otherwise no other shard of this member would move to balance the load."""
    member = Member(living=[ME, B, C]).starts().serves()
    member.tell(m.MoveTo(0, "b"))
    assert not [each for each in member.passes(TIMINGS.warm_s - 1.0) if isinstance(each, m.MoveGivenUp)]
    given_up = [each for each in member.passes(1.5) if isinstance(each, m.MoveGivenUp)]
    assert given_up == [m.MoveGivenUp(0, "b", is_lost=False)]
    assert member.keeper.successor(0) == ""


def test_the_previous_owner_claims_again_if_the_successor_does_not() -> None:
    member = Member().starts().serves()
    member.tell(m.MoveTo(0, "b"))
    member.tell(m.StandbyReady(0, "b"))
    [release] = member.tell(m.Frozen(0, 1))
    assert isinstance(release, m.WriteLease)
    member.reads(release.key, release.value)
    member.passes(TIMINGS.successor_s - 0.1)
    assert written(member.effects) == []
    assert written(member.passes(0.2)) == [claim_of(3)]


def test_a_shard_may_move_to_and_fro_without_a_pause() -> None:
    """Claims back off against one another. Who is named by the owner has nobody against it, however often; its later
    claim, after a loss, waits no longer for that. That one is repeated after a pause only."""
    member = Member(living=[ME, B, C]).starts()
    epoch = 1
    for _ in range(6):
        member.claims(C, epoch)
        member.reads(LeaseKey("c", 0, epoch + 1, C), Release(successor="a"))
        assert written(member.tell(m.Due())) == [claim_of(epoch + 2)]
        member.claims(ME, epoch + 2)
        epoch += 3
    member.claims(C, epoch)
    member.reads(LeaseKey("s", 0, epoch, C), Standbys(names=["a"]))
    member.life.step(LinkEnded("c"), member.now)
    member.life.step(RedialResult("c", "refused"), member.now)
    assert written(member.tell(m.Due())) == [claim_of(epoch + 1)]
    member.tell(m.WriteFailed(0, epoch + 1))
    assert written(member.tell(m.Due())) == [], "claims for the same loss back off"


def test_a_shard_that_does_not_freeze_begins_anew() -> None:
    member = Member().starts().serves()
    member.tell(m.MoveTo(0, "b"))
    member.tell(m.StandbyReady(0, "b"))
    assert written(member.passes(TIMINGS.freeze_s + 0.2)) == [claim_of(2)]
    assert member.claims(ME, 2) == [m.End(0, 1), m.Begin(0, 2)]


def test_a_move_to_a_further_member_names_no_more_standbys_than_readers_accept() -> None:
    """Q9: with as many standbys as there may be. All others would skip the record, and nobody would keep it warm."""
    others = [Claimant(f"m{number}", 1) for number in range(MOST_STANDBYS + 1)]
    member = Member(living=[ME, *others], standbys=MOST_STANDBYS).starts().serves()
    before = standbys_of(member.passes(TIMINGS.standbys_s))
    assert len(before) == MOST_STANDBYS
    [to] = {other.name for other in others} - set(before)
    member.tell(m.MoveTo(0, to))
    assert standbys_of(member.passes(TIMINGS.standbys_s)) == [to, *before[:-1]]


def standbys_of(effects: list[m.LeaseEffect]) -> list[str]:
    """What readers of the last such record take from it. Raises RecordError if they skip it."""
    last = [each for each in effects if isinstance(each, m.WriteLease) and isinstance(each.value, Standbys)][-1]
    assert isinstance(last.value, Standbys)
    _, read = decode_lease(last.key.encode(), encode_lease(last.value))
    assert isinstance(read, Standbys)
    return read.names
