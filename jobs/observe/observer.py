"""Everything that monitors one Spark application, put together."""

from collections.abc import Callable, Mapping, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics
from pyspark.sql import SparkSession

from jobs.observe.jvm import Jvm
from jobs.observe.progress import Watcher
from jobs.observe.progress_log import ProgressLog
from jobs.observe.query_metrics import QueryMetrics
from jobs.observe.readiness import Readiness
from jobs.observe.server import ListenAddress, ObserverServer
from schemas.settings import LogSettings
from schemas.version import installed_version


class Observer:
    """Metrics, health and log of the application `name`: served from the start, filled by its reporters. `clock` gives
    seconds since the epoch. Raises JobError if the address is taken; with `awaits_address` it waits for another
    process that is to release it. `routes` are served too."""

    def __init__(
        self,
        name: str,
        listen_at: ListenAddress,
        settings: LogSettings,
        clock: Callable[[], float],
        awaits_address: bool = False,
        routes: Sequence[web.RouteDef] = (),
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.readiness = Readiness()
        self._jvm = Jvm()
        self._queries = QueryMetrics(self.registry, clock)
        self._log = ProgressLog(settings, clock)
        for collector in (self.readiness, self._jvm):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)
        info = Gauge(
            "waystation_spark_info",
            "Name and version of the application; always 1",
            ["application", "version"],
            registry=self.registry,
        )
        info.labels(name, installed_version()).set(1)
        self._server = ObserverServer(listen_at, self.registry, self.readiness.report, awaits_address, routes)
        self.listeners = {f"{name}-metrics": self._server.address}
        """By name, `host:port`, as a ready file announces them."""

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """The watchers that the listener reports to."""
        return (self.readiness, self._queries, self._log)

    def watch(self, spark: SparkSession, triggers: Mapping[str, float]) -> None:
        """Sets the session and the queries of the application, by name with triggers in seconds."""
        self._jvm.attach(spark)
        self._queries.expect(triggers)
        self._log.expect(triggers)
        self.readiness.expect(triggers)

    def look(self, now: float) -> None:
        """Sample what nobody reports; called by the application's loop, `now` on its clock."""
        self._jvm.sample(now)

    def stop(self) -> None:
        self._server.stop()
