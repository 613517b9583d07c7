"""What this gateway knows of the shards' owners, and what it has taken over, as Prometheus metrics (G4, G6, G14)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.members.table import MemberTable
from gateway.observe.shard_owners import OWNER_STATES, has_standby, owner_state


class Takeovers(Protocol):
    """What this gateway has taken over since its start: how often by reason, and how many seconds the last takeover
    took, None before the first."""

    @property
    def totals(self) -> Mapping[str, int]: ...

    @property
    def last_s(self) -> float | None: ...


class LeaseMetrics(Collector):
    """Figures of a cluster's gateway `gateway`, whose shards have `standbys` standbys each. `leases` gives what it
    has read, `relays` how many clients are relayed, `now` monotonic seconds. Call it on the event loop."""

    def __init__(
        self,
        gateway: str,
        standbys: int,
        leases: Callable[[], LeaseTable],
        members: MemberTable,
        takeovers: Takeovers,
        relays: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._standbys = standbys
        self._leases = leases
        self._members = members
        self._takeovers = takeovers
        self._relays = relays
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield from self._shards()
        yield from self._by_state()
        taken = CounterMetricFamily(
            "waystation_takeovers", "Shards that this gateway has taken over, by reason", labels=["reason"]
        )
        for reason, count in self._takeovers.totals.items():
            taken.add_metric([reason], count)
        yield taken
        last = GaugeMetricFamily(
            "waystation_last_takeover_seconds",
            "How long the last takeover by this gateway took, from reading its claim to serving; none before the first",
        )
        if self._takeovers.last_s is not None:
            last.add_metric([], self._takeovers.last_s)
        yield last
        yield GaugeMetricFamily("waystation_relays", "Clients relayed to their homes now", value=self._relays())

    def _all(self) -> Iterator[Lease]:
        leases = self._leases()
        return (leases[shard] for shard in range(len(leases)))

    def _shards(self) -> Iterator[Metric]:
        owned = GaugeMetricFamily("waystation_shard_owned", "1 for a shard of this gateway, else 0", labels=["shard"])
        epoch = GaugeMetricFamily(
            "waystation_shard_epoch", "Epoch of a shard, as far as this gateway has read leases", labels=["shard"]
        )
        for lease in self._all():
            is_own = lease.owner is not None and lease.owner.name == self._gateway
            owned.add_metric([str(lease.shard)], int(is_own))
            epoch.add_metric([str(lease.shard)], lease.epoch)
        yield owned
        yield epoch

    def _by_state(self) -> Iterator[Metric]:
        now = self._now()
        found = Counter(owner_state(lease, self._members, now) for lease in self._all())
        shards = GaugeMetricFamily(
            "waystation_shards", "All shards by the state of their owners, as this gateway sees it", labels=["state"]
        )
        for state in OWNER_STATES:
            shards.add_metric([state], found[state])
        yield shards
        own = [lease for lease in self._all() if lease.owner is not None and lease.owner.name == self._gateway]
        alone = [lease for lease in own if self._standbys and not has_standby(lease, self._members, now)]
        yield GaugeMetricFamily(
            "waystation_shards_without_standby",
            "Shards of this gateway without any standby that is up, although gateway.cluster.standbys asks for some",
            value=len(alone),
        )
