"""Metrics that only routers, and the fold of routes, have, and where a router serves them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from jobs.observe.readiness import Readiness
from jobs.observe.server import ListenAddress
from schemas.settings import RouterSettings

PAUSE_BUCKETS_S = (0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)


def router_listen_address(settings: RouterSettings, roles: Sequence[str]) -> ListenAddress:
    """Where a process with these roles serves its metrics: a backup in its own process has its own port."""
    if list(roles) == ["backup"]:
        return ListenAddress(
            settings.metrics_host, settings.backup_metrics_port, "router.metrics_host", "router.backup_metrics_port"
        )
    return ListenAddress(settings.metrics_host, settings.metrics_port, "router.metrics_host", "router.metrics_port")


class RouterMetrics:
    """Metrics that only routers have, by name: `active`, `backup`, `active-standby`, `backup-standby`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pause = Histogram(
            "waystation_router_pause_seconds",
            "Pause of a router between two batches, during which it routes nothing",
            ["router"],
            buckets=PAUSE_BUCKETS_S,
            registry=registry,
        )
        self._realigned = Counter(
            "waystation_router_realignments",
            "Restarts of a router's query to move its batches half a batch away from its peer's",
            ["router"],
            registry=registry,
        )

    def expect(self, router: str) -> None:
        """Announces a router: its metrics exist from the start, at 0, so that their first increase is seen."""
        self._pause.labels(router)
        self._realigned.labels(router)

    def paused(self, router: str, pause_s: float) -> None:
        self._pause.labels(router).observe(pause_s)

    def realigned(self, router: str) -> None:
        self._realigned.labels(router).inc()


class RouterReporter(NamedTuple):
    """Where a router reports what happens to its query, besides the listener. `failed` takes its name and the error."""

    metrics: RouterMetrics
    readiness: Readiness
    failed: Callable[[str, str], None]


class RoutesMetrics:
    """Metrics that only the fold of routes has. `lead_s` is `router.route_lead_s`."""

    def __init__(self, registry: CollectorRegistry, lead_s: float) -> None:
        Gauge(
            "waystation_route_lead_seconds",
            "Maximum age of the routes table; if it is older, routers send messages to all shards",
            registry=registry,
        ).set(lead_s)
        self._registry = registry
        self._as_of: Gauge | None = None

    def folded(self, as_of_us: int) -> None:
        """The table has all events up to this moment, µs since the epoch. The metric does not exist before the first
        fold."""
        if self._as_of is None:
            self._as_of = Gauge(
                "waystation_routes_as_of_timestamp_seconds",
                "Time up to which the routes table has all route events",
                registry=self._registry,
            )
        self._as_of.set(as_of_us / 1_000_000)
