"""What one member does about leases: claims, begins, moves and releases shards (G4, G6, G14, Q6-Q9). Pure.

`step(event, now)` takes what happened and returns what to do, as values (:mod:`gateway.cluster.lease_messages`).

| phase of a shard here | since                                                                                        |
|-----------------------|----------------------------------------------------------------------------------------------|
| `idle`                | somebody else owns it, or nobody                                                             |
| `starting`            | **its own claim was read back** and is the shard's lease; its home writes fences and reads   |
| `serving`             | the home has said that its fences are in force                                               |
| `freezing`            | a planned move: the home stops                                                               |
| `released`            | the release is written                                                                       |

Writing a claim changes no phase. Only the lease that is read from the log does: whoever else it names, the home here
ends. One claim is on its way at a time, its epoch is above all that were seen in claims and fences and above all that
this process has tried, and what was written for an epoch is never written again. So a claim whose fate is not known
does no harm, whenever it arrives.

A claim that is read long after it was written may win only because compaction has removed an earlier one of its epoch,
whose owner has a higher epoch by now, further on in the log. So a shard begins after such a claim, as after standing
still, only once the log is read to an end that was asked for meanwhile.
"""

from collections.abc import Callable, Iterator

from gateway.cluster import lease_messages as m
from gateway.cluster.claimant import BackOff, is_successor, may_be_claimed, wait_s
from gateway.cluster.kept_shard import KeptShard, Phase
from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.cluster.life import Claimed, Life
from gateway.cluster.placement import Candidate, moves, standbys
from gateway.cluster.timings import LeaseTimings
from schemas.leases import MOST_STANDBYS, Claim, Claimant, LeaseKey, Release, Standbys

MOVES_AT_ONCE = 2
"""Shards that a draining member moves at the same time; others move one."""


class LeaseKeeper:
    """The leases of `me`. `table` and `life` are read here; `table` is fed here, `life` by its own events. `count` is
    how many standbys a shard has. Times are monotonic seconds, `clock_us` gives µs since the epoch, for people."""

    def __init__(
        self,
        me: Claimant,
        table: LeaseTable,
        life: Life,
        timings: LeaseTimings,
        count: int = 1,
        clock_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self._me = me
        self._table = table
        self._life = life
        self._timings = timings
        self._count = count
        self._clock_us = clock_us
        self._shards = [KeptShard() for _ in range(len(table))]
        self._is_started = False
        self._is_draining = False
        self._stays = self._drain_waits = self._is_drained = False
        self._is_verifying = False
        self._verifying_since = 0.0
        self._stepped_at: float | None = None
        self._members: list[Candidate] = []
        self._members_since = 0.0
        self._rebalanced_at = 0.0

    def step(self, event: m.LeaseEvent, now: float) -> list[m.LeaseEffect]:
        """Takes what happened; returns what to do, in order."""
        stall = self._notice_stall(now)
        if stall and isinstance(event, m.Verified):  # it was verified before the loop stood still
            return stall
        return [*stall, *self._take(event, now)]

    def phase(self, shard: int) -> Phase:
        return self._shards[shard].phase

    def owned(self, shard: int) -> int:
        """The epoch in which a shard is this member's, 0 if it is not."""
        return self._shards[shard].owned

    def is_followed(self, shard: int) -> bool:
        """Whether this member is to keep a shard warm."""
        return self._shards[shard].is_followed

    def successor(self, shard: int) -> str:
        """The member to which a shard of this member's moves, "" for none."""
        return self._shards[shard].to or ""

    def _take(self, event: m.LeaseEvent, now: float) -> Iterator[m.LeaseEffect]:
        match event:
            case m.LeaseRead():
                yield from self._lease_read(event, now)
            case m.CaughtUp():
                self._is_started = True
                self._look_at_members(now)
                for shard in range(len(self._shards)):
                    yield from self._settle(shard, now)
            case m.FenceRead(shard, epoch):
                state = self._shards[shard]
                state.fence = max(state.fence, epoch)
            case m.Fenced(shard, epoch):
                yield from self._fenced(shard, epoch, now)
            case m.Outranked(shard, epoch):
                state = self._shards[shard]
                if state.owned == epoch and state.phase == "starting" and state.pending is None:
                    yield from self._claim(shard, now)
            case m.Superseded(shard, epoch, fence):
                state = self._shards[shard]
                state.fence = max(state.fence, fence)
                if state.owned == epoch and state.phase in ("serving", "freezing") and state.pending is None:
                    yield from self._claim(shard, now)
            case m.Frozen(shard, epoch):
                yield from self._frozen(shard, epoch)
            case m.StandbyReady(shard, name):
                self._shards[shard].ready.add(name)
                yield from self._go_on_with_move(shard, now)
            case m.StandbyNotReady(shard, name):
                self._shards[shard].ready.discard(name)
            case m.MoveTo(shard, name):
                yield from self._plan_move(shard, name, now)
            case m.Drain(stays):
                self._stays = stays and (self._stays or not self._is_draining)
                self._is_draining = True
                yield from self._tick(now)
            case m.WriteFailed(shard, epoch):
                yield from self._write_failed(shard, epoch, now)
            case m.Verified():
                yield from self._verified(now)
            case m.Due():
                yield from self._consider_all(now)
            case m.Tick():
                yield from self._tick(now)

    # -- what the log says ---------------------------------------------------------------------------------------------

    def _lease_read(self, event: m.LeaseRead, now: float) -> Iterator[m.LeaseEffect]:
        shard = event.key.shard
        if shard >= len(self._shards):
            return
        before, lease = self._table[shard], self._table.apply(event.offset, event.key, event.value)
        assert lease is not None  # the shard is one of these
        state = self._shards[shard]
        if (lease.epoch, lease.owner) != (before.epoch, before.owner):
            state.lease_since, state.claimable_since = now, None
            if self._is_started and lease.owner is not None:
                self._life.step(Claimed(lease.owner), now)
        if state.pending is not None and lease.epoch >= state.pending:
            state.pending = None
        if self._is_started:
            yield from self._settle(shard, now)
        for epoch in [epoch for epoch in state.written if epoch <= lease.epoch]:
            del state.written[epoch]

    def _settle(self, shard: int, now: float) -> Iterator[m.LeaseEffect]:
        """Brings what is done here into line with the lease."""
        state, lease = self._shards[shard], self._table[shard]
        mine = lease.epoch if lease.owner == self._me else 0
        if mine != state.owned:
            if state.owned:
                yield m.End(shard, state.owned)
                self._enter(state, "idle", 0)
            if now - state.written.get(mine, now) > self._timings.verify_again_s:
                yield from self._verify(now)
            if mine and not self._is_verifying:
                self._enter(state, "starting", mine)
                state.is_followed = False
                yield m.Begin(shard, mine)
        elif not mine and lease.is_fenced and state.is_followed != (self._me.name in lease.standbys):
            state.is_followed = not state.is_followed
            yield m.Follow(shard) if state.is_followed else m.Unfollow(shard)

    def _enter(self, state: KeptShard, phase: Phase, owned: int) -> None:
        state.phase, state.owned, state.must_claim = phase, owned, False
        state.ready, state.to, state.standbys_at = set(), None, float("-inf")

    # -- claims --------------------------------------------------------------------------------------------------------

    def _consider(self, shard: int, now: float) -> Iterator[m.LeaseEffect]:
        """Claims the shard if it is this member's turn."""
        state, lease = self._shards[shard], self._table[shard]
        if not may_be_claimed(lease, self._me, self._life, state.lease_since, now, self._timings):
            state.claimable_since = None
            if now - state.lease_since > self._timings.calm_s:
                state.back_off = BackOff()
            return
        if state.claimable_since is None:
            state.claimable_since = now if lease.owner is not None else max(state.lease_since, self._members_since)
        is_named = is_successor(lease, self._me) and state.tried <= lease.epoch
        if state.pending is not None or (state.back_off.not_before > now and not is_named):
            return
        wait = wait_s(lease, self._me, self._members, self._timings)
        if wait is not None and now - state.claimable_since >= wait:
            yield from self._claim(shard, now, is_named=is_named)

    def _claim(self, shard: int, now: float, *, is_named: bool = False) -> Iterator[m.LeaseEffect]:
        """`is_named`: its owner has released the shard for this member. No such claim is one in a row of claims that
        members make against one another, however often the shard moves."""
        state = self._shards[shard]
        epoch = state.pending = state.tried = self._next_epoch(shard)
        state.written[epoch], state.must_claim = now, False
        if not is_named:
            state.back_off = state.back_off.claimed(now, self._timings)
        yield m.WriteLease(LeaseKey("c", shard, epoch, self._me), Claim(at_us=self._clock_us()))

    def _next_epoch(self, shard: int) -> int:
        """Above all that were seen in claims and fences, and all that this process has written."""
        state = self._shards[shard]
        return 1 + max(self._table[shard].epoch, state.fence, state.tried)

    def _write_failed(self, shard: int, epoch: int, now: float) -> Iterator[m.LeaseEffect]:
        state = self._shards[shard]
        if state.pending == epoch:
            state.pending = None
        if state.phase == "released" and state.tried == epoch:
            yield from self._claim(shard, now)
        elif state.owned and state.tried == epoch:
            state.must_claim = True

    # -- what the owner does -------------------------------------------------------------------------------------------

    def _fenced(self, shard: int, epoch: int, now: float) -> Iterator[m.LeaseEffect]:
        state = self._shards[shard]
        if state.owned == epoch and state.phase == "starting":
            state.phase = "serving"
            self._rebalanced_at = now  # what has just come does not go back at once
            yield from self._write_standbys(shard, now)

    def _write_standbys(self, shard: int, now: float) -> Iterator[m.LeaseEffect]:
        """Names the standbys, and removes what lower epochs have left."""
        state = self._shards[shard]
        state.standbys_at = now
        key = LeaseKey("s", shard, state.owned, self._me)
        yield m.WriteLease(key, Standbys(names=self._wanted_standbys(shard)))
        for outdated in self._table.outdated(shard):
            yield m.WriteLease(outdated, None)

    def _wanted_standbys(self, shard: int) -> list[str]:
        """By placement, but first the member to which the shard is to move."""
        to = self._shards[shard].to
        first = [] if to is None else [to]
        others = [name for name in standbys(shard, self._me.name, self._members, self._count) if name != to]
        return [*first, *others][:MOST_STANDBYS]

    def _keep(self, shard: int, now: float) -> Iterator[m.LeaseEffect]:
        """What is due of a shard of one's own."""
        state, lease = self._shards[shard], self._table[shard]
        yield from self._go_on_with_move(shard, now)
        if state.must_claim and state.pending is None and state.back_off.not_before <= now:
            yield from self._claim(shard, now)
        elif state.phase == "freezing" and now - state.freezing_since > self._timings.freeze_s:
            if state.pending is None:  # it begins anew, in another epoch
                yield from self._claim(shard, now)
        elif (
            state.phase == "serving"
            and now - state.standbys_at >= self._timings.standbys_s
            and not (lease.is_fenced and list(lease.standbys) == self._wanted_standbys(shard))
        ):
            yield from self._write_standbys(shard, now)

    def _plan_move(self, shard: int, to: str, now: float) -> Iterator[m.LeaseEffect]:
        """It moves once `to` is its standby and warm."""
        state = self._shards[shard]
        self._look_at_members(now)
        if state.phase == "serving" and to != self._me.name and self._is_member(to):
            state.to, state.to_since = to, now
            yield from self._go_on_with_move(shard, now)

    def _go_on_with_move(self, shard: int, now: float) -> Iterator[m.LeaseEffect]:
        """Silence of the member to which the shard is to move may be short. One that never gets warm does not keep the
        other shards from moving."""
        state = self._shards[shard]
        if state.phase != "serving" or state.to is None:
            return
        is_member = self._is_member(state.to)
        state.to_seen = now if is_member else state.to_seen
        if is_member and (state.to in state.ready or self._is_draining):
            state.phase, state.freezing_since = "freezing", now
            yield m.Freeze(shard, state.owned)
        elif now - state.to_seen > self._timings.settle_s or now - state.to_since > self._timings.warm_s:
            yield m.MoveGivenUp(shard, state.to, is_lost=not is_member)
            state.to = None

    def _is_member(self, name: str) -> bool:
        return any(member.name == name for member in self._members)

    def _frozen(self, shard: int, epoch: int) -> Iterator[m.LeaseEffect]:
        state = self._shards[shard]
        if state.owned == epoch and state.phase == "freezing":
            state.phase = "released"
            state.tried = self._next_epoch(shard)
            key = LeaseKey("c", shard, state.tried, self._me)
            yield m.WriteLease(key, Release(successor=state.to, at_us=self._clock_us()))

    # -- time ----------------------------------------------------------------------------------------------------------

    def _consider_all(self, now: float) -> Iterator[m.LeaseEffect]:
        """Claims what it is this member's turn to claim. One that drains, and stays, claims only what it has given up
        itself and its successor has not claimed: that may drain too."""
        if not self._is_started or self._is_verifying or not self._life.is_reading(now):
            return
        self._look_at_members(now)
        for shard, state in enumerate(self._shards):
            if not state.owned and (self._takes_back(shard) or not self._is_draining):
                yield from self._consider(shard, now)

    def _takes_back(self, shard: int) -> bool:
        """Whether it goes on while it drains, and has given up a shard that nobody has claimed yet."""
        return self._stays and self._table[shard].released_by == self._me

    def _tick(self, now: float) -> Iterator[m.LeaseEffect]:
        if not self._is_started or self._is_verifying or not self._life.is_reading(now):
            return
        self._look_at_members(now)
        for shard, state in enumerate(self._shards):
            if state.owned:
                yield from self._keep(shard, now)
        yield from self._consider_all(now)
        if self._is_draining:
            yield from self._drain(now)
        elif now - max(self._members_since, self._rebalanced_at) >= self._timings.settle_s:
            yield from self._rebalance(now)

    def _look_at_members(self, now: float) -> None:
        members = self._life.candidates(now)
        if [member.name for member in members] != [member.name for member in self._members]:
            self._members_since = now
        self._members = members

    def _rebalance(self, now: float) -> Iterator[m.LeaseEffect]:
        """One shard at a time, if all shards have owners that serve; every member computes the same moves."""
        leases: list[Lease] = [self._table[shard] for shard in range(len(self._shards))]
        self._rebalanced_at = now - self._timings.settle_s + self._timings.rebalance_s
        if not all(lease.is_fenced for lease in leases) or any(state.to is not None for state in self._shards):
            return
        owners = {lease.shard: lease.owner.name for lease in leases if lease.owner is not None}
        for move in moves(owners, self._members, 1):
            if move.owner == self._me.name:
                yield from self._plan_move(move.shard, move.to, now)

    def _drain(self, now: float) -> Iterator[m.LeaseEffect]:
        """Every shard goes to its first standby that is there. Of a member that ends, it goes to whoever claims it."""
        names = [member.name for member in self._members if member.name != self._me.name]
        waits, waited = self._stays and not names, self._drain_waits
        self._drain_waits = waits and any(state.owned for state in self._shards)
        if self._drain_waits and not waited:
            yield m.DrainWaits()
        moving = sum(state.phase in ("freezing", "released") for state in self._shards)
        for shard, state in enumerate(self._shards):
            if moving >= MOVES_AT_ONCE or waits:
                break
            if state.phase == "serving":
                moving += 1
                there = [name for name in self._table[shard].standbys if name in names]
                there += standbys(shard, self._me.name, self._members, 1)
                state.to = there[0] if there else None
                state.phase, state.freezing_since = "freezing", now
                yield m.Freeze(shard, state.owned)
        is_left = any(s.owned or s.pending or self._takes_back(shard) for shard, s in enumerate(self._shards))
        if not self._is_drained and not is_left:
            self._is_drained = True
            yield m.Drained()

    def _verified(self, now: float) -> Iterator[m.LeaseEffect]:
        """If it took long, compaction may have removed the claim that stood there when the end was asked for, and its
        successor stands behind it."""
        if self._is_verifying and now - self._verifying_since > self._timings.verify_again_s:
            self._verifying_since = now
            yield m.Verify()
        elif self._is_verifying:
            self._is_verifying = False
            yield m.Resume()
            for shard in range(len(self._shards)):
                yield from self._settle(shard, now)

    def _notice_stall(self, now: float) -> list[m.LeaseEffect]:
        """A loop that stood still may have lost shards without knowing: it looks before it sends anything."""
        stood_still = self._stepped_at is not None and now - self._stepped_at > self._timings.verify_s
        self._stepped_at = now
        return self._verify(now) if stood_still and self._is_started else []

    def _verify(self, now: float) -> list[m.LeaseEffect]:
        self._is_verifying, self._verifying_since = True, now
        return [m.Hold(), m.Verify()]
