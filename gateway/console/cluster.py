"""What the pages of a cluster's gateway say of shards that may be anywhere: who has them, and links to the consoles of
the others. Pure: the time comes in, monotonic seconds.

Everything is as this gateway has read it on `leases` and `members`, so it may be a moment old.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.console.owner_changes import OwnerChanges
from gateway.console.parts import CUT, link, name
from gateway.members.table import MemberTable
from gateway.observe.shard_owners import OwnerState, has_standby, owner_state
from gateway.observe.standby_metrics import Followed, StandbyFigures
from schemas.members import CONSOLE

MOST_NAMED = 10
"""Shards that a warning names."""

_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}|[0-9A-Fa-f:.]{2,45}")


class ClusterSources:
    """Where console and metrics of a cluster's gateway look. They are there before the gateway takes part in the
    cluster: until `begin` they know of no shard.

    `phase` gives the phase of a shard here, as the keeper of leases calls it
    (:data:`gateway.cluster.lease_keeper.Phase`); `standby_figures` are of links and of shards that are kept warm.
    """

    def __init__(self, gateway: str) -> None:
        self.leases = LeaseTable(0)
        self.changes = OwnerChanges(gateway)
        self.phase: Callable[[int], str] = lambda shard: "idle"
        self.standby_figures: Callable[[], StandbyFigures] = StandbyFigures

    def begin(self, leases: LeaseTable, phase: Callable[[int], str]) -> None:
        """What was on `leases` at the start has been read; only later changes are to be given to `changes`."""
        self.leases, self.phase = leases, phase


class Cluster:
    """The shards of a site, seen from the gateway `gateway`."""

    def __init__(self, gateway: str, sources: ClusterSources, members: MemberTable) -> None:
        self.gateway = gateway
        self.changes = sources.changes
        self._sources = sources
        self._members = members

    def __len__(self) -> int:
        """How many shards there are."""
        return len(self._sources.leases)

    def leases(self) -> Iterator[Lease]:
        return (self._sources.leases[shard] for shard in range(len(self._sources.leases)))

    def owner(self, shard: int) -> str:
        """The name of the shard's owner, "" if it has none."""
        owner = self._sources.leases[shard].owner
        return "" if owner is None else owner.name

    def state(self, lease: Lease, now: float) -> OwnerState:
        return owner_state(lease, self._members, now)

    def phase(self, shard: int) -> str:
        """What this gateway does with the shard: `idle`, `standby`, or a phase of its own shard."""
        phase = self._sources.phase(shard)
        return "standby" if phase == "idle" and self.gateway in self._sources.leases[shard].standbys else phase

    def standbys(self, lease: Lease, now: float) -> list[str]:
        """Their names, with `warm` or `cold` by their heartbeats; those that are not up with their state."""
        return [self._with_status(one, lease.shard, now) for one in lease.standbys]

    def kept_warm(self) -> Mapping[int, Followed]:
        """The shards of which this gateway is a standby, and how far behind it is."""
        return self._sources.standby_figures().followed

    def is_alone(self, lease: Lease, now: float) -> bool:
        """Whether the shard has standbys, and none of them is up."""
        return bool(lease.standbys) and not has_standby(lease, self._members, now)

    def owned(self) -> Counter[str]:
        """How many shards each gateway owns."""
        return Counter(lease.owner.name for lease in self.leases() if lease.owner is not None)

    def followed(self) -> Counter[str]:
        """Of how many shards each gateway is a standby."""
        return Counter(standby for lease in self.leases() for standby in lease.standbys)

    def console(self, gateway: str, path: str, **query: str) -> str:
        """Where a page of another gateway's console is; "" if it does not say, and for this gateway."""
        member = None if gateway == self.gateway else self._members.get(gateway)
        at = None if member is None else member.record.addresses.get(CONSOLE)
        if at is None or not _HOST.fullmatch(at.address):  # anybody who may write to the topic may have written it
            return ""
        host = f"[{at.address}]" if ":" in at.address else at.address
        return link(f"http://{host}:{at.port}{path}", **query)

    def warning(self, now: float) -> str:
        """Which shards have nobody to serve them, "" if all have."""
        found: dict[str, list[int]] = {}
        for lease in self.leases():
            state = owner_state(lease, self._members, now)
            if state == "no_owner":
                found.setdefault("without an owner", []).append(lease.shard)
            elif state == "owner_silent" and lease.owner is not None:
                found.setdefault(f"with a silent owner ({name(lease.owner.name).text})", []).append(lease.shard)
        return "; ".join(f"shards {what}: {_numbers(shards)}" for what, shards in list(found.items())[:MOST_NAMED])

    def _with_status(self, gateway: str, shard: int, now: float) -> str:
        member = self._members.get(gateway)
        status: str = "unknown" if member is None else self._members.status(member, now)
        if member is not None and status == "up":
            status = "warm" if shard in member.record.warm else "cold"
        return f"{gateway} ({status})"


def _numbers(shards: Sequence[int]) -> str:
    named = ", ".join(str(shard) for shard in shards[:MOST_NAMED])
    return f"{named}, {CUT} ({len(shards)} in all)" if len(shards) > MOST_NAMED else named
