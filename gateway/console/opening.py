"""Puts the console together and adds its pages to what the observer serves."""

import asyncio

from gateway.console.cluster import Cluster, ClusterSources
from gateway.console.console import Console
from gateway.console.facts import ConsoleFacts
from gateway.console.sampler import Sampler
from gateway.feeds.table import FeedTable
from gateway.members.table import MemberTable
from gateway.observe.metrics import Sources
from gateway.observe.observer import Observer
from gateway.observe.site_sessions import SiteSessions


def open_console(
    sources: Sources,
    observer: Observer,
    members: MemberTable,
    feeds: FeedTable,
    cluster: ClusterSources | None = None,
) -> Sampler:
    """Call it before the observer starts. `cluster`: None if gateways do not share the shards. Returns what fills the
    plots, to be started and stopped."""
    node, loop = sources.node, asyncio.get_running_loop()
    stages = {
        "produce": sources.kafka.produce_seconds,
        "checkpoint": node.checkpoint_seconds,
        "loop": observer.watch.seconds,
    }
    sampler = Sampler(node, sources.hosts, sources.in_flight, stages)
    readiness, home = observer.readiness, sources.home
    shared = None if cluster is None else Cluster(node.settings.gateway.name, cluster, members)
    facts = ConsoleFacts(sources, observer.stats, readiness, members, feeds, sampler.history, loop.time, shared)
    sessions = SiteSessions(home, sources.hosts)
    console = Console(facts, observer.access, sessions, home, readiness, node.clock, sources.version)
    observer.add_routes(console.routes())
    return sampler
