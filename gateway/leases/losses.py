"""Notices on `leases` that a member was lost: another one has claimed a shard that it had not released (G14)."""

from collections.abc import Callable

from gateway.cluster.lease_table import Lease
from schemas.leases import Claimant

MOST_KNOWN = 1_000


class Losses:
    """`on_loss` gets each process that was lost, once, however many shards it had; again only if it has got a shard
    since: one that was taken for dead may live."""

    def __init__(self, on_loss: Callable[[Claimant], None]) -> None:
        self._on_loss = on_loss
        self._known: dict[Claimant, None] = {}  # the one lost first is first

    def changed(self, before: Lease, after: Lease) -> None:
        """A record changed a shard's lease. Give it none of what was on the topic before the start."""
        lost = before.owner
        if after.owner is not None and after.owner != lost:
            self._known.pop(after.owner, None)
        if lost is None or after.owner is None or after.owner == lost or lost in self._known:
            return
        self._known[lost] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._on_loss(lost)
