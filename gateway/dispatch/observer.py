"""`/metrics`, `/healthz` and `/readyz` of the dispatcher."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.listening import listening
from gateway.observe.exposition import Exposition
from gateway.observe.http_listener import HttpListener
from schemas.readiness import readiness_report

CONNECTIONS: Final = 20

_COUNTERS: Final = {
    "accepted": ("waystation_dispatcher_connections_accepted", "Connections that the dispatcher accepted"),
    "taken": ("waystation_dispatcher_connections_given", "Connections that a gateway of this machine has taken"),
    "returned": (
        "waystation_dispatcher_connections_returned",
        "How often a gateway ended or stood still before it took a connection, which then went to another one",
    ),
    "member_records_skipped": (
        "waystation_member_records_skipped",
        "Records on the topic members that are not valid, and were skipped",
    ),
    "lease_records_skipped": (
        "waystation_lease_records_skipped",
        "Records on the topic leases that are not valid, and were skipped",
    ),
}
_REFUSED: Final = {"full": "full", "nobody": "no_gateway", "left": "client_left"}


class DispatcherMetrics(Collector):
    """`counts` as in :class:`gateway.dispatch.dispatcher.Dispatcher`; `waiting` are connections that no gateway has
    yet, `reached` the gateways of this machine."""

    def __init__(self, counts: Counter[str], waiting: Callable[[], int], reached: Callable[[], int]) -> None:
        self._counts, self._waiting, self._reached = counts, waiting, reached

    def collect(self) -> Iterator[Metric]:
        for word, (name, meaning) in _COUNTERS.items():
            yield CounterMetricFamily(name, meaning, value=self._counts[word])
        ended = CounterMetricFamily(
            "waystation_dispatcher_connections_ended",
            "Connections that ended before a gateway had them",
            labels=["reason"],
        )
        for word, reason in _REFUSED.items():
            ended.add_metric([reason], self._counts[word])
        yield ended
        yield GaugeMetricFamily(
            "waystation_dispatcher_connections_waiting", "Connections that no gateway has yet", value=self._waiting()
        )
        yield GaugeMetricFamily(
            "waystation_dispatcher_gateways", "Gateways of this machine that take connections", value=self._reached()
        )


class DispatcherObserver:
    """Serves until it is stopped; `faults` says what is wrong with each part, "" if nothing is."""

    def __init__(self, metrics: Collector, faults: Callable[[], Mapping[str, str]]) -> None:
        self._gathered, self._faults = metrics, faults
        self._exposition = Exposition()
        self._listener = HttpListener(CONNECTIONS)
        routes = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._listener.add_routes([web.get(path, handler) for path, handler in routes.items()])

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises SettingsError for an address that cannot be used."""
        with listening("gateway.dispatcher.metrics_port", host, port):
            return await self._listener.start(host, port)

    async def stop(self) -> None:
        await self._listener.stop()

    async def _metrics(self, request: web.Request) -> web.Response:
        families, accept = list(self._gathered.collect()), request.headers.get("Accept", "")
        text, content_type = await asyncio.to_thread(self._exposition.render, families, accept)
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        faults = self._faults()
        body, status = msgspec.json.encode(readiness_report(faults)), 503 if any(faults.values()) else 200
        return web.Response(body=body, status=status, content_type="application/json")
