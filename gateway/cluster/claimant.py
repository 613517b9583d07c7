"""When a member claims a shard: who may, in which order, and how long it waits (G4, G6, Q6, Q7). Pure.

A shard is claimed if nobody owns it, or if the observer does not take its owner for alive, or if the owner has had time
to write its fences and has not. All candidates see that at about the same moment. Two claims do no harm, since the
log's order decides; but each costs a takeover. So the candidates wait in turn: the first standby claims at once, each
later one a while after the one before, and behind the standbys all others by the shard's ranking. If nobody before it
is left, a candidate is the first.

A shard with much state takes longer to start than that. Whoever claims it has to read the same. So as long as the owner
says in its heartbeats that its start makes progress, it is left alone, within a limit.

After a planned release the named successor claims at once. If it does not, the previous owner does, and then the rest.
"""

from collections.abc import Collection
from typing import NamedTuple

from gateway.cluster.lease_table import Lease
from gateway.cluster.life import Life
from gateway.cluster.placement import Candidate, rank_of, ranking
from gateway.cluster.timings import LeaseTimings
from schemas.leases import Claimant


def may_be_claimed(lease: Lease, me: Claimant, life: Life, since: float, now: float, timings: LeaseTimings) -> bool:
    """Whether the shard needs another owner, as far as `me` can tell. `since`: when it learned of this lease."""
    if lease.owner is None:
        return True
    if lease.owner == me:
        return False
    if life.verdict(lease.owner, now) != "alive":
        return True
    if lease.is_fenced or not life.is_trusting(now):
        return False
    patience_s: float = timings.fence_s * 2 ** min(lease.unfenced, MOST_DOUBLINGS)
    progressed_at = life.progressed_at(lease.owner, lease.shard)
    if progressed_at is not None and now - since <= timings.start_s:
        since = max(since, progressed_at)
    return now - since > patience_s


def is_successor(lease: Lease, me: Claimant) -> bool:
    """Whether the shard's owner has released it for `me`."""
    return lease.released_by is not None and lease.successor == me.name


def wait_s(lease: Lease, me: Claimant, members: Collection[Candidate], timings: LeaseTimings) -> float | None:
    """How long `me` waits with its claim from the moment when the shard could be claimed; None if it is no candidate.
    `members`: those that may own shards, `me` among them if it may."""
    others = [
        member for member in members if lease.owner is None or member.name != lease.owner.name or member.name == me.name
    ]
    by_name = {member.name: member for member in others}
    if me == lease.released_by and lease.successor is not None:  # also if it gives up its shards: nobody else may come
        return timings.successor_s
    if me.name not in by_name:
        return None
    if is_successor(lease, me):
        return 0.0
    order = [name for name in lease.standbys if name in by_name]
    order += [member.name for member in ranking(lease.shard, others) if member.name not in order]
    rank = rank_of(me.name, order)
    assert rank is not None  # it is among `others`
    first = 0.0
    if lease.released_by is not None and lease.successor in by_name:
        first = 2 * timings.successor_s
    return first + rank * timings.rank_s


MOST_DOUBLINGS = 4
"""How often the time that an owner has for its fences doubles, while one owner after the other does not make it: all
may be slow, and claims in turn make them slower. It follows from the log, so all members have the same patience."""


class BackOff(NamedTuple):
    """How often a shard was claimed here in a row, and when it may be claimed again."""

    claims: int = 0
    not_before: float = float("-inf")

    def claimed(self, now: float, timings: LeaseTimings) -> "BackOff":
        wait = min(timings.longest_backoff_s, timings.backoff_s * 2**self.claims)
        return BackOff(min(self.claims + 1, 30), now + wait)
