"""Prometheus metrics of a gateway: gathered per scrape, never on the message path.

The figures are copied on the event loop, where they change. Another thread then formats them, together with what the
operating system reports about the process.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.host.host_server import HostServer
from gateway.kafka_stats import KafkaStats
from gateway.observe.counts import count_families
from gateway.observe.session_stats import SessionStats
from gateway.shard.arrivals import REPLY_INBOX
from gateway.shard.home import Home
from gateway.shard.node import Node

_QOS = ("0", "1", "2")
_CLIENTS = (
    ("tcp", "mqtt3.1.1"),
    ("tcp", "mqtt5"),
    ("ws", "mqtt3.1.1"),
    ("ws", "mqtt5"),
    ("quic", "mqtt3.1.1"),
    ("quic", "mqtt5"),
    ("tcp", "http"),
    ("tcp", REPLY_INBOX),
)
"""Bearers and protocols of clients; each has a series from the start."""


class Sources(NamedTuple):
    """Where the figures come from. `others` are collectors of single metrics, such as histograms."""

    node: Node
    home: Home
    hosts: HostServer
    in_flight: Callable[[], int]
    kafka: KafkaStats
    version: str
    others: tuple[Collector, ...] = ()


def gather(sources: Sources, stats: SessionStats) -> list[Metric]:
    """All current figures; call it on the event loop."""
    return [
        *_identity(sources),
        *_connections(sources, stats),
        *_sessions(stats),
        *_traffic(sources),
        *count_families(sources.node.counts + sources.hosts.counts),
        *_stores(sources),
        *_kafka(sources),
        *(family for collector in sources.others for family in collector.collect()),
    ]


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)


def _identity(sources: Sources) -> Iterator[Metric]:
    info = GaugeMetricFamily("waystation_gateway_info", "Name and version; always 1", labels=["gateway", "version"])
    info.add_metric([sources.node.settings.gateway.name, sources.version], 1)
    yield info


def _connections(sources: Sources, stats: SessionStats) -> Iterator[Metric]:
    limit = sources.hosts.limits.connections
    yield _gauge(
        "waystation_connections",
        "Open MQTT connections, whether CONNECT has arrived or not",
        len(sources.hosts.connections),
    )
    yield _gauge("waystation_connections_limit", "Limit of open connections, HTTP connections included", limit)
    yield _gauge(
        "waystation_requests_waiting",
        "Requests over HTTP that wait for replies, those included that were sent on to the client's home",
        sources.hosts.waiting_requests(),
    )
    clients = GaugeMetricFamily("waystation_clients", "Connected clients", labels=["bearer", "protocol"])
    for place in sorted({*_CLIENTS, *stats.clients}):
        clients.add_metric(place, stats.clients[place])
    yield clients


def _sessions(stats: SessionStats) -> Iterator[Metric]:
    sessions = GaugeMetricFamily("waystation_sessions", "Sessions", labels=["state"])
    sessions.add_metric(["connected"], stats.connected)
    sessions.add_metric(["offline"], stats.offline)
    yield sessions
    yield _gauge("waystation_share_groups", "Groups of shared subscriptions", stats.share_groups)
    yield _gauge("waystation_subscriptions", "Subscriptions of all sessions", stats.subscriptions)
    yield _gauge("waystation_queued_messages", "Messages queued for sessions and share groups", stats.queued_messages)
    yield _gauge("waystation_queued_bytes", "Bytes queued for sessions and share groups", stats.queued_bytes)
    yield _gauge(
        "waystation_largest_queue_messages", "Messages in the longest queue of a session", stats.largest_queue_messages
    )
    yield _gauge("waystation_largest_queue_bytes", "Bytes in the longest queue of a session", stats.largest_queue_bytes)
    yield _gauge(
        "waystation_unacknowledged_messages",
        "QoS 1 and 2 messages sent to clients and not finished",
        stats.unacknowledged,
    )


def _traffic(sources: Sources) -> Iterator[Metric]:
    traffic = sources.hosts.traffic
    for name, meaning, value in (
        ("waystation_received_bytes", "MQTT bytes from clients", traffic.bytes_received),
        ("waystation_sent_bytes", "MQTT bytes to clients", traffic.bytes_sent),
        ("waystation_received_packets", "MQTT packets from clients, of any type", traffic.packets_received),
        ("waystation_sent_packets", "MQTT packets to clients, of any type", traffic.packets_sent),
    ):
        yield CounterMetricFamily(name, meaning, value=value)
    for name, meaning, by_qos in (
        ("waystation_received_publishes", "PUBLISH packets from clients", traffic.publishes_received),
        ("waystation_sent_publishes", "PUBLISH packets to clients, including redeliveries", traffic.publishes_sent),
    ):
        family = CounterMetricFamily(name, meaning, labels=["qos"])
        for qos, count in zip(_QOS, by_qos, strict=True):
            family.add_metric([qos], count)
        yield family


def _stores(sources: Sources) -> Iterator[Metric]:
    home, spool = sources.home, sources.home.spool_size
    yield _gauge("waystation_retained_messages", "Retained messages", len(sources.node.retained))
    yield _gauge("waystation_routes", "Route keys requested from the routers", home.routes)
    yield _gauge("waystation_spool_rows", "Deliveries in the spool", spool.rows)
    yield _gauge("waystation_spool_file_bytes", "Size of the spool's files", spool.file_bytes)
    bundles = sum(len(shard.bundles) for shard in home.states)
    yield _gauge("waystation_bundle_sources", "Pairs of a store and a recipient whose bundles are remembered", bundles)
    failing = int(bool(home.spool_fault))
    yield _gauge("waystation_spool_failing", "1 while the spool cannot be written or read", failing)
    parked = sum(shard.order.parked.records for shard in home.states)
    yield _gauge(
        "waystation_parked_instructions", "Instructions waiting for direct deliveries of earlier messages", parked
    )
    held = sum(shard.feeds.held for shard in home.states)
    yield _gauge("waystation_feed_held", "Copies of redundant feeds' messages that wait behind gaps", held)


def _kafka(sources: Sources) -> Iterator[Metric]:
    topics, kafka = sources.node.topics, sources.kafka
    yield _gauge("waystation_kafka_in_flight_records", "Records in flight to Kafka", sources.in_flight())
    yield _gauge("waystation_kafka_waiting_bytes", "Bytes not sent to Kafka yet", kafka.waiting_bytes)
    yield _gauge("waystation_kafka_brokers_up", "Brokers with a live connection", kafka.brokers_up)
    positions = GaugeMetricFamily(
        "waystation_position", "First record of a partition that is not processed yet", labels=["topic", "partition"]
    )
    lag = GaugeMetricFamily(
        "waystation_consumer_lag_records",
        "Records of a partition that are not processed yet; its end is up to 5 s old",
        labels=["topic", "partition"],
    )
    taken = {(topics.egress, shard.number): shard.applied_to for shard in sources.home.states}
    taken[topics.retained, 0] = sources.node.retained.folded_to
    for (topic, partition), position in taken.items():
        positions.add_metric([topic, str(partition)], position)
        end = kafka.ends.get((topic, partition))
        if end is not None:
            lag.add_metric([topic, str(partition)], max(0, end - position))
    yield positions
    yield lag
