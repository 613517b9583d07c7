"""What a gateway of a cluster has read on `leases`, for its metrics and its console."""

from collections.abc import Callable

from gateway.cluster.lease_table import LeaseTable
from gateway.console.cluster import ClusterSources
from gateway.members.table import MemberTable
from gateway.observe.lease_metrics import LeaseMetrics
from gateway.observe.standby_metrics import StandbyMetrics
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Release, Standbys
from tests.unit.gateway.members.heartbeat_records import heartbeat


class LeasesSeen:
    """Records come in one by one, as from the topic. `phases`: what the gateway does with its shards. `relays`: how
    many clients it relays."""

    def __init__(self, gateway: str, shards: int, members: MemberTable, now: Callable[[], float]) -> None:
        self.table, self.sources = LeaseTable(shards), ClusterSources(gateway)
        self.changes = self.sources.changes
        self.phases: dict[int, str] = {}
        self.relays = 0
        self._members = members
        self._now = now
        self._offset = 0
        self.metrics = LeaseMetrics(
            gateway, 1, lambda: self.sources.leases, members, self.changes, lambda: self.relays, now
        )
        self.standby_metrics = StandbyMetrics(lambda: self.sources.standby_figures())
        self.begin()

    def begin(self) -> None:
        """What was on the topic is read."""
        self.sources.begin(self.table, lambda shard: self.phases.get(shard, "idle"))

    def member(self, name: str, boot: int = 1, age_s: float = 0.0, **fields: object) -> None:
        """A heartbeat was read so many seconds ago."""
        self._members.apply(name, heartbeat(name, boot, **fields), self._now() - age_s)  # type: ignore[arg-type]

    def claim(self, shard: int, epoch: int, name: str, boot: int = 1) -> None:
        self._read("c", shard, epoch, Claimant(name, boot), Claim())

    def release(self, shard: int, epoch: int, name: str, to: str | None = None, boot: int = 1) -> None:
        self._read("c", shard, epoch, Claimant(name, boot), Release(successor=to))

    def serves(self, shard: int, epoch: int, name: str, *standbys: str, boot: int = 1) -> None:
        """The owner names its standbys, so its fences are in force."""
        self._read("s", shard, epoch, Claimant(name, boot), Standbys(names=list(standbys)))

    def _read(self, kind: str, shard: int, epoch: int, claimant: Claimant, value: LeaseValue) -> None:
        before, self._offset = self.table[shard], self._offset + 1
        after = self.table.apply(self._offset, LeaseKey(kind, shard, epoch, claimant), value)
        assert after is not None
        self.changes.changed(before, after, self._now())
