"""Parts of a shard's home, made by the settings."""

from collections.abc import Callable, Coroutine
from typing import Any

from feeds.merge_settings import MergeSettings
from gateway.shard.catch_up_reader import IngressCatchUpReader
from gateway.shard.delivery import Deliverer
from gateway.shard.direct_deliveries import DirectDeliveries
from gateway.shard.egress_consumer import EgressConsumer
from gateway.shard.egress_flow import EgressFlow
from gateway.shard.feed_consumer import FeedConsumer
from gateway.shard.feed_writer import FeedWriter
from gateway.shard.ingress_fences import IngressFences
from gateway.shard.merged_feeds import MergedFeeds
from gateway.shard.node import Node
from gateway.shard.offering import Offering
from gateway.shard.routes import ShardRoutes
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.shares import Shares
from gateway.shard.taken_bundles import BundleLimits


def shard_state(number: int, node: Node) -> Shard:
    """The state of a shard of which nothing is known yet."""
    mesh, of = node.settings.gateway.mesh, node.settings.gateway.feeds
    bundles = BundleLimits(mesh.sources, mesh.envelope_sources, mesh.remembered_s)
    merging = MergeSettings(
        reorder_ms=of.reorder_ms,
        deadline_ms=of.deadline_ms,
        recovers=False,  # both copies are read from one log
        delivers_late=of.delivers_late,
        streams=of.streams,
        held_messages=of.held_messages,
        held_bytes=of.held_bytes,
        gaps=of.gaps,
        lost_ranges=of.lost_ranges,
        compared=1,  # the ledger compares payloads
        administrative=of.administrative,
    )
    return Shard(number, bundles, MergedFeeds(node.settings.feeds.names, merging, of.silent_ms, node.counts))


def egress_consumer(
    node: Node,
    shard: Shard,
    spool: ShardSpool,
    deliverer: Deliverer,
    routes: ShardRoutes,
    reader: IngressCatchUpReader,
    feeds: FeedWriter,
    shares: Shares,
    spawn: Callable[[Coroutine[Any, Any, None]], object],
) -> EgressConsumer:
    """What applies a shard's records of `egress` and `ingress`."""
    offering = Offering(shard, deliverer, node)
    fences = IngressFences(node, shard) if node.settings.gateway.cluster.enabled else None
    direct = DirectDeliveries(node, shard, routes, spool.outage, offering, reader, feeds, fences)
    merged = FeedConsumer(node, shard, spool, deliverer, offering, feeds)
    flow = EgressFlow(node, shard, spool.outage, spawn)
    return EgressConsumer(
        node, shard, spool, deliverer, direct, offering, flow, merged, shares.receive, shares.senders, fences
    )
