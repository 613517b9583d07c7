"""Prometheus metrics of a gateway: read when scraped, nothing on the message path."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.home.context import HomeContext
from gateway.host.server import HostServer


class GatewayCollector(Collector):
    """Counts of the home and the hosts, and sizes."""

    def __init__(self, hosts: HostServer, context: HomeContext) -> None:
        self._hosts = hosts
        self._context = context

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("waystation_connections", "Open connections", value=len(self._hosts.connections))
        sessions = [session for shard in self._context.shards for session in list(shard.sessions.values())]
        yield GaugeMetricFamily("waystation_sessions", "Sessions, connected or not", value=len(sessions))
        queued = sum(session.queued for session in sessions)
        yield GaugeMetricFamily("waystation_queued_messages", "Messages waiting for sessions", value=queued)
        yield GaugeMetricFamily("waystation_retained_messages", "Retained messages", value=len(self._context.retained))
        positions = GaugeMetricFamily(
            "waystation_position", "First record of a partition that is not taken yet", labels=["topic", "partition"]
        )
        for shard in self._context.shards:
            positions.add_metric([self._context.topics.egress, str(shard.number)], shard.folded_to)
        yield positions
        events = CounterMetricFamily("waystation_gateway_events", "What happened, by kind", labels=["event"])
        for name, value in {**self._context.counts, **self._hosts.counts}.items():
            events.add_metric([name], value)
        yield events


def serve_metrics(host: str, port: int, hosts: HostServer, context: HomeContext) -> int:
    """Serves `/metrics` on a thread; returns the port."""
    registry = CollectorRegistry()
    registry.register(GatewayCollector(hosts, context))
    server, _thread = start_http_server(port, host, registry)
    return int(server.server_port)
