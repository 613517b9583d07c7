"""Who owns each shard, as a fold over the topic `leases` (G4, G6, G14). Pure.

**The owner of a shard is the claimant of the record with the highest epoch, and among those of that epoch of the one
with the lowest offset.** If that record is a release, the shard has no owner. Records never compete by time.

Only the last record of each key counts, so the table is a function of what compaction keeps: it comes to the same
result from the whole log and from any compaction of it, and so all members agree at any offset. Claims have a key for
each epoch, and only keys below the owner's epoch are removed (:mod:`schemas.leases`), so nothing that a tombstone or
compaction removes could have won.

A reader that was away for long may meet the tombstone of a claim without the claim that had superseded it, because that
has been superseded and removed as well. It must not fall back on what it had read before. So a tombstone also says that
there is a higher epoch: up to its own nothing counts any more, and until the higher one is read nobody is known to own
the shard. In a complete log the higher claim stands before the tombstone, and this changes nothing.

What the table does not do is trust: it follows from the log alone, never from who is alive.
"""

from typing import NamedTuple

from schemas.leases import Claimant, LeaseKey, LeaseValue, Release, Standbys

MOST_CLAIMS = 1_000
"""Claims of one shard that are remembered. Beyond that, those of the lowest epoch are forgotten: they cannot win."""


class Lease(NamedTuple):
    """Who owns a shard. `epoch` 0: nobody has claimed it yet. `owner` is None before that, while it is not known, and
    after a release; then `released_by` is the claimant that gave it up, and `successor` the member that is to claim it.
    `standbys` are names in the order of takeover: those that the owner has named, or, until it has, those of the latest
    owner that has. `is_fenced`: this owner has named its own, and so said that its fences are in force. `unfenced`:
    how many epochs before this one have passed since the last of which that was so."""

    shard: int
    epoch: int = 0
    owner: Claimant | None = None
    standbys: tuple[str, ...] = ()
    is_fenced: bool = False
    released_by: Claimant | None = None
    successor: str | None = None
    unfenced: int = 0


class _Claimed(NamedTuple):
    """A record of kind `c`, as far as the order of claims needs it."""

    offset: int
    is_release: bool
    successor: str | None


class LeaseTable:
    """The leases of `shards` shards; records of other shards are passed over."""

    def __init__(self, shards: int) -> None:
        self._claims: list[dict[LeaseKey, _Claimed]] = [{} for _ in range(shards)]
        self._standbys: list[dict[LeaseKey, tuple[str, ...]]] = [{} for _ in range(shards)]
        self._removed_to = [0] * shards  # the highest epoch of a tombstone
        self._leases = [Lease(shard) for shard in range(shards)]

    def __len__(self) -> int:
        return len(self._leases)

    def __getitem__(self, shard: int) -> Lease:
        return self._leases[shard]

    def apply(self, offset: int, key: LeaseKey, value: LeaseValue | None) -> Lease | None:
        """Takes the record at `offset`; records come in the order of the log. Returns the shard's lease, None if the
        shard is none of these."""
        if key.shard >= len(self._leases):
            return None
        of_shard = self._claims[key.shard]
        if value is None:
            of_shard.pop(key, None)
            self._standbys[key.shard].pop(key, None)
            self._removed_to[key.shard] = max(self._removed_to[key.shard], key.epoch)
        elif isinstance(value, Standbys):
            names = self._standbys[key.shard]
            names[key] = tuple(value.names)
            if len(names) > MOST_CLAIMS:
                del names[min(names, key=lambda key: key.epoch)]
        else:
            is_release = isinstance(value, Release)
            of_shard[key] = _Claimed(offset, is_release, value.successor if isinstance(value, Release) else None)
            if len(of_shard) > MOST_CLAIMS:
                del of_shard[max(of_shard, key=lambda key: self._precedence(key, of_shard[key]))]
        self._leases[key.shard] = self._lease(key.shard)
        return self._leases[key.shard]

    def outdated(self, shard: int) -> list[LeaseKey]:
        """The keys that the shard's owner may remove by tombstones: those below its epoch."""
        lease = self._leases[shard]
        if lease.owner is None:
            return []
        return [key for kept in (self._claims, self._standbys) for key in kept[shard] if key.epoch < lease.epoch]

    def _lease(self, shard: int) -> Lease:
        claims = self._claims[shard]
        if all(self._is_superseded(shard, key.epoch) for key in claims):
            return Lease(shard, self._removed_to[shard])
        key = min(claims, key=lambda key: self._precedence(key, claims[key]))
        head = claims[key]
        own = self._standbys[shard].get(key._replace(kind="s"))
        if own is not None and not head.is_release:
            return Lease(shard, key.epoch, key.claimant, own, True)
        served, standbys = self._earlier_standbys(shard, key.epoch)
        unfenced = key.epoch - served - 1
        if head.is_release:
            return Lease(shard, key.epoch, None, standbys, False, key.claimant, head.successor, unfenced)
        return Lease(shard, key.epoch, key.claimant, standbys, unfenced=unfenced)

    def _earlier_standbys(self, shard: int, epoch: int) -> tuple[int, tuple[str, ...]]:
        """The last epoch before `epoch` whose owner has named standbys, 0 if none has, and those: they are warm,
        whoever owns the shard by now. Not removed before the next owner has named its own."""
        named = self._standbys[shard]
        earlier = [key for key in named if key.epoch < epoch]
        if not earlier:
            return 0, ()
        last = max(earlier, key=lambda key: (key.epoch, key.claimant))
        return last.epoch, named[last]

    def _is_superseded(self, shard: int, epoch: int) -> bool:
        return epoch <= self._removed_to[shard]

    @staticmethod
    def _precedence(key: LeaseKey, claimed: _Claimed) -> tuple[int, int]:
        """The lowest wins."""
        return -key.epoch, claimed.offset
