"""The times by which members of the cluster judge one another, in seconds (Q6, G6)."""

from typing import NamedTuple


class LifeTimings(NamedTuple):
    """`silent_s`: a member whose link is silent, or that is cut off from Kafka, is suspect after so long without a
    record on `members`. It must be longer than three heartbeats. `reading_gap_s`: if the observer itself has read
    nothing for so long, it begins to measure anew. `stall_s`: an observer whose own loop stood still for longer trusts
    no silence for `distrust_s`."""

    silent_s: float = 0.6
    reading_gap_s: float = 0.4
    stall_s: float = 0.15
    distrust_s: float = 1.0


class LeaseTimings(NamedTuple):
    """`rank_s`: each candidate claims so much later than the one before it. `successor_s`: how long the others wait for
    the successor of a planned move: its previous owner so long, the rest twice as long. `fence_s`: an owner whose
    fences are not in force after so long is suspect; not while it says that its start makes progress, for `start_s` at
    most. `warm_s`: how long a planned move waits until its target is warm. `freeze_s`: how long a shard may take to
    freeze. `backoff_s` and `longest_backoff_s`: a claim repeated for the same shard waits, twice as long each time;
    after `calm_s` with one owner it counts as the first again. `verify_s`: after standing still for longer than this a
    member verifies its leases before it sends anything, and if that took longer than `verify_again_s`, once more: it
    must be well below `min.compaction.lag.ms` of `leases`. `standbys_s`: the least time between two changes of a
    shard's standbys. `rebalance_s`: how often a member looks whether its shards should move; `settle_s`: it does so
    only once the set of members has not changed for so long."""

    rank_s: float = 0.2
    successor_s: float = 0.3
    fence_s: float = 2.0
    start_s: float = 120.0
    warm_s: float = 600.0
    freeze_s: float = 5.0
    backoff_s: float = 0.25
    longest_backoff_s: float = 5.0
    calm_s: float = 10.0
    verify_s: float = 0.6
    verify_again_s: float = 60.0
    standbys_s: float = 0.5
    rebalance_s: float = 1.0
    settle_s: float = 3.0
