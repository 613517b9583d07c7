"""The changes of shards' owners that this gateway has read on `leases` since its start, the latest KEPT of them. Pure:
times come in, monotonic seconds.

Also what this gateway itself has taken over: totals by reason, and how long the last one took.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from gateway.cluster.lease_table import Lease
from schemas.leases import Claimant

KEPT = 100

Reason = Literal["planned", "lost", "first", "again"]
"""`planned`: the owner had released the shard; `lost`: it was claimed without that; `first`: nobody had owned it;
`again`: the same process claims it in a higher epoch, which is no takeover."""


class OwnerChange(NamedTuple):
    """`at`: when this gateway read the claim. `served_after_s`: how much later it read that the new owner's fences are
    in force, None if it has not."""

    at: float
    shard: int
    epoch: int
    previous: Claimant | None
    owner: Claimant
    reason: Reason
    served_after_s: float | None = None


class OwnerChanges:
    """Of all shards, as the gateway `gateway` reads them."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._changes: dict[tuple[int, int], OwnerChange] = {}  # by shard and epoch, the oldest first
        self._totals = Counter[str]({"planned": 0, "lost": 0})
        self._last_s: float | None = None

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[OwnerChange]:
        """The newest first."""
        return reversed(list(self._changes.values()))

    @property
    def totals(self) -> Mapping[str, int]:
        """Takeovers by this gateway, `planned` and `lost`."""
        return self._totals

    @property
    def last_s(self) -> float | None:
        """How long the last takeover by this gateway took, from reading its claim to serving."""
        return self._last_s

    def changed(self, before: Lease, after: Lease, now: float) -> None:
        """A record changed a shard's lease. Give it every change, also those of `is_fenced`, but none of what was on
        the topic before the start: that is history."""
        owner, key = after.owner, (after.shard, after.epoch)
        if owner is None:
            return
        if (after.epoch, owner) != (before.epoch, before.owner):
            previous = before.owner or before.released_by
            self._add(OwnerChange(now, *key, previous, owner, _reason(before, previous, owner)))
        change = self._changes.get(key)
        if after.is_fenced and change is not None and change.served_after_s is None:
            self._changes[key] = change._replace(served_after_s=now - change.at)
            if self._is_own_takeover(change):
                self._last_s = now - change.at

    def _add(self, change: OwnerChange) -> None:
        key = change.shard, change.epoch
        self._changes.pop(key, None)
        self._changes[key] = change
        if len(self._changes) > KEPT:
            del self._changes[next(iter(self._changes))]
        if self._is_own_takeover(change):
            self._totals[change.reason] += 1

    def _is_own_takeover(self, change: OwnerChange) -> bool:
        return change.owner.name == self._gateway and change.reason in self._totals


def _reason(before: Lease, previous: Claimant | None, owner: Claimant) -> Reason:
    if previous == owner:
        return "again"
    if before.owner is None and before.released_by is not None:
        return "planned"
    return "lost" if before.epoch else "first"
