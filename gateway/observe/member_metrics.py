"""What this gateway knows of the gateways of its site, as Prometheus metrics (G2)."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.members.table import STATUSES, MemberTable


class MemberMetrics(Collector):
    """Gauges of a table; `now` gives monotonic seconds. Call it on the event loop."""

    def __init__(self, table: MemberTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now

    def collect(self) -> Iterator[Metric]:
        now = self._now()
        found = Counter(self._table.status(member, now) for member in self._table)
        members = GaugeMetricFamily(
            "waystation_members", "Gateways on the topic members, this one included, by state", labels=["state"]
        )
        for status in STATUSES:
            members.add_metric([status], found[status])
        yield members
        age = GaugeMetricFamily(
            "waystation_member_heartbeat_age_seconds",
            "Time since the last heartbeat of a gateway was read; those that have ended in order are left out",
            labels=["member"],
        )
        for member in self._table:
            if member.heard_at is not None and member.record.state != "gone":
                age.add_metric([member.name], max(0.0, now - member.heard_at))
        yield age
