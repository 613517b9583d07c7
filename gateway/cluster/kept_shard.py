"""What a member remembers of one shard besides the log of leases (G4, G6)."""

from typing import Literal

from gateway.cluster.claimant import BackOff

Phase = Literal["idle", "starting", "serving", "freezing", "released"]


class KeptShard:
    """Only :class:`gateway.cluster.lease_keeper.LeaseKeeper` assigns these. Times are monotonic seconds.

    `owned`: the epoch in which the shard is this member's, 0 for none; `pending`: the epoch of a claim that was written
    and is not read yet; `must_claim`: a claim could not be written that the shard, which is this member's, needs to
    begin anew; `tried`: the highest epoch that this process has written; `written`: when it wrote the claims that are
    not read yet, by epoch; `fence`: the highest fence seen. `claimable_since`: when it was first seen that the shard
    needs another owner. `is_followed`: this member keeps it warm. `ready`: the standbys that are warm; `to`: the member
    to which the shard is to move; `to_since`: since when; `to_seen`: when that could own shards last.
    """

    def __init__(self) -> None:
        self.phase: Phase = "idle"
        self.owned = 0
        self.pending: int | None = None
        self.must_claim = False
        self.tried = 0
        self.written: dict[int, float] = {}
        self.fence = 0
        self.lease_since = 0.0
        self.claimable_since: float | None = None
        self.back_off = BackOff()
        self.is_followed = False
        self.ready: set[str] = set()
        self.to: str | None = None
        self.to_since = self.to_seen = 0.0
        self.freezing_since = 0.0
        self.standbys_at = float("-inf")
