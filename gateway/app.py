"""The gateway process: assembles Kafka, the home, the listeners and the metrics, and stops them in order."""

import asyncio
import gc
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import structlog

from gateway.access.access import open_access
from gateway.access.enrolment import Enrolment
from gateway.console.cluster import ClusterSources
from gateway.console.opening import open_console
from gateway.counts import Counts
from gateway.feeds.follower import FeedFollower
from gateway.feeds.service import FeedService
from gateway.feeds.topics import FeedTopics
from gateway.host.dispatched import open_dispatched
from gateway.host.host_server import HostServer
from gateway.host.listeners import Listeners, open_quic_tls
from gateway.host.member_tls import open_member_tls
from gateway.host.open_files import allow_open_files
from gateway.host.tls import ServerTls
from gateway.http.bundles_handler import Mesh
from gateway.http.server import HttpServer
from gateway.kafka_bus import KafkaBus
from gateway.leases.joining import Cluster
from gateway.leases.owned_shards import OwnedShards
from gateway.members.access_point import AccessPoint
from gateway.members.addresses import advertised
from gateway.members.companions import Companions
from gateway.members.follower import MembersFollower
from gateway.members.heartbeats import HeartbeatWriter
from gateway.members.process_load import ProcessLoad
from gateway.members.table import MemberTable
from gateway.mesh.certificate_topic import CertificateTopic
from gateway.mesh.platform import Platform
from gateway.observe.cluster_admin import ClusterView
from gateway.observe.feed_metrics import FeedMetrics
from gateway.observe.lease_metrics import LeaseMetrics
from gateway.observe.member_metrics import MemberMetrics
from gateway.observe.metrics import Sources
from gateway.observe.observer import Observer
from gateway.observe.readiness import Readiness
from gateway.observe.standby_metrics import StandbyMetrics
from gateway.partition_counts import check_partitions, topics_that_count
from gateway.policy.policy_authenticator import PolicyAuthenticator
from gateway.shard.home import Home
from gateway.shard.message_presence import MessagePresence
from gateway.shard.node import Node
from gateway.shard.progress import ProgressReporter
from gateway.shard.retained import RetainedMessages
from gateway.shard.shard_spool import open_spool
from gateway.watched import Watcher
from schemas.errors import WaystationError
from schemas.readiness import announce_ready
from schemas.settings import GatewaySettings, Settings
from schemas.topics import Topics
from schemas.version import installed_version

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_RELOAD_SIGNALS = (signal.SIGHUP,)

_KEPT_READERS = 4
"""Topics that a takeover reads at the same time."""

_GC_THRESHOLDS = (20_000, 20, 50)
"""Messages leave no reference cycles; with Python's default thresholds, looking for some takes a tenth of the time."""

_FLUSH_TIMEOUT_S = 3.0
"""For the last checkpoint, for the consumer to end, and for records in flight. With 8 s for connections this stays
below the 20 s that a supervisor allows."""

log = structlog.get_logger(__name__)


async def run(settings: Settings, part: str) -> None:
    """Runs until SIGTERM or SIGINT. Raises an error that is final, so that a supervisor restarts the process.

    Before the first client can come it is cancelled: it has promised nothing, and may wait for a Kafka that is away.
    """
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[None] = loop.create_future()
    takes_clients = asyncio.Event()
    serving = loop.create_task(_serve(settings, part, stopping, takes_clients))

    def stop() -> None:
        if not stopping.done():
            stopping.set_result(None)
        if not takes_clients.is_set():
            serving.cancel()

    _on_signals(_STOP_SIGNALS, loop, stop)
    try:
        await serving
    except asyncio.CancelledError:
        if takes_clients.is_set() or not stopping.done():
            raise
        stopping.result()  # raises what has ended the consumer
        log.info("gateway stopped before it was ready")


async def _serve(settings: Settings, part: str, stopping: asyncio.Future[None], takes_clients: asyncio.Event) -> None:
    """Until `stopping` is done. Sets `takes_clients`; from then on it ends in order only."""
    loop = asyncio.get_running_loop()

    def fatal(error: Exception) -> None:
        if not stopping.done():
            stopping.set_exception(error)

    gateway, counts = settings.gateway, Counts[str]()
    limits = gateway.limits
    allow_open_files(limits.open_files, f"gateway.limits.connections = {limits.connections}")
    access = open_access(gateway, time.time, counts)
    platform = Platform(gateway.mesh, time.time) if gateway.mesh.enabled else None
    tls = ServerTls(gateway.tls) if gateway.tls.is_on else None
    quic = open_quic_tls(gateway)
    member_tls = open_member_tls(gateway)
    enrolment = Enrolment(gateway.enrolment, time.time) if gateway.enrolment.enabled else None
    bus = KafkaBus(settings.kafka, loop, fatal, _KEPT_READERS if gateway.cluster.enabled else 0)
    executor, spools = ThreadPoolExecutor(1, "spool"), Path(settings.data) / "spool" / gateway.name
    all_shards = () if gateway.cluster.enabled else range(settings.kafka.shards)
    files = {shard: open_spool(spools, shard, executor) for shard in all_shards}
    topics = Topics(settings.kafka.prefix)
    node = Node(
        settings=settings,
        topics=topics,
        bus=bus,
        clock=time.time,
        reporter=ProgressReporter(
            bus,
            topics.progress,
            settings.kafka.ingress_partitions,
            lambda error: fatal(WaystationError(f"cannot write to the topic progress: {error.str()}")),
        ),
        retained=RetainedMessages(
            gateway.limits.retained_messages, gateway.limits.retained_bytes, settings.kafka.shards
        ),
        message_presence=MessagePresence(
            bus, topics.message_presence, settings.kafka.ingress_partitions, gateway.limits.message_presences, counts
        ),
        on_fatal=fatal,
        counts=counts,
    )
    home = Home(node, files, spools.with_name(f"{gateway.name}.sqlite"))
    if access.authorizer is not None:
        access.authorizer.changed = home.rules_changed
    authenticator = PolicyAuthenticator(access.authenticator, gateway.policy, counts, loop.time)
    hosts = HostServer(gateway, home, time.time, lambda: bus.in_flight, fatal, authenticator)
    members = MemberTable(gateway.cluster.members, gateway.cluster.timeout_s)
    feeds = FeedFollower(bus, topics.feeds, settings.feeds, gateway.name, loop.time, time.time, node.counts)
    shared = ClusterSources(gateway.name) if gateway.cluster.enabled else None
    sources = Sources(
        node,
        home,
        hosts,
        lambda: bus.in_flight,
        bus.stats,
        installed_version(),
        (
            MemberMetrics(members, loop.time),
            FeedMetrics(feeds.table, loop.time),
            *_lease_metrics(shared, gateway, members, hosts),
        ),
    )
    readiness = Readiness(topics.egress, topics.ingress, home, bus.stats, lambda: bus.is_consuming, bus.find_fault)
    observer = Observer(sources, home, readiness)
    sampler = open_console(sources, observer, members, feeds.table, shared) if gateway.console.enabled else None
    metrics_port = await observer.start(gateway.host, gateway.metrics_port)
    if sampler is not None:
        sampler.start()
    bus.start(home.records)
    members_follower = MembersFollower(bus, topics.members, members, loop.time, counts, node.broker_clock)
    counted = bus.partition_counts(topics_that_count(topics))
    found, _, _ = await asyncio.gather(counted, members_follower.start(), feeds.start())
    check_partitions(found, topics, settings.kafka)
    companions = Companions(gateway.name, gateway.cluster, members, fatal)
    members_follower.listeners.append(companions.heard)
    await companions.alone()
    cluster = None
    if gateway.cluster.enabled:
        earlier = members.get(gateway.name)
        node.numbers.begin(time.time(), 0 if earlier is None else earlier.record.boot)
        cluster = Cluster(node, home, hosts, members_follower, members, member_tls, spools, executor)
        observer.cluster = ClusterView(gateway.name, cluster.control, members, loop.time, cluster.followed)
    await home.start()
    companions.begin(node.numbers.boot)
    feed_service = FeedService(feeds, settings.feeds, settings.kafka.prefix, loop.time, time.time)
    feed_topics = FeedTopics(node, home, feed_service, settings.feeds.timeout_s, fatal)
    feed_topics.start()
    heartbeats = _heartbeats(node, hosts, None if cluster is None else cluster.shards)
    if cluster is not None:
        cluster.control.on_drain = heartbeats.drain
    heartbeats.join(None if cluster is None else await cluster.open_links())
    used = (tls, quic)
    enrolled = [] if enrolment is None else [enrolment.file]
    mesh_files = [] if platform is None else platform.files
    member_files = [] if member_tls is None else member_tls.files
    served = [one.files for one in used if one is not None]
    watcher = Watcher([*access.files, *served, *enrolled, *mesh_files, *member_files])
    _on_signals(_RELOAD_SIGNALS, loop, watcher.reload)
    mesh = await _mesh(platform, hosts, node)
    takes_clients.set()
    clients = await Listeners.open(hosts, gateway, tls, quic)
    dispatched = open_dispatched(hosts, gateway)
    relay_at = None if cluster is None else await cluster.listen(clients)
    owner = None if cluster is None else cluster.owners.owner
    access_point = AccessPoint(members, gateway.access_point, Random(), loop.time, owner)
    http = HttpServer(hosts, gateway, access_point, enrolment, mesh, feed_service)
    ports = clients.ports | await http.open(tls)
    connect_at = advertised(gateway, ports | {"metrics": metrics_port}, socket.gethostname())
    heartbeats.serve(connect_at, relay_at)
    if cluster is not None and shared is not None:
        await cluster.take_part(stopping, shared)
    log.info("addresses advertised", **{bearer: f"{at.address}:{at.port}" for bearer, at in connect_at.items()})
    readiness.phase = ""
    addresses = {name: f"{gateway.host}:{port}" for name, port in {**ports, "metrics": metrics_port}.items()}
    if part:
        announce_ready(settings.data, part, {"listeners": addresses, "recovered": home.recovered})
    log.info("gateway ready", sessions=home.sessions, recovered=home.recovered, **addresses)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        await stopping
    finally:
        for number in (*_STOP_SIGNALS, *_RELOAD_SIGNALS):  # ignore repeated signals until the process ends
            signal.signal(number, signal.SIG_IGN)
        readiness.phase = "the gateway is being stopped"
        heartbeats.drain()
        if cluster is not None:
            await cluster.give_up()
        clients.close()
        if dispatched is not None:
            dispatched.close()
        await http.stop()
        await feed_topics.stop()
        feeds.stop()
        await hosts.stop()
        await clients.closed()
        await watcher.stop()
        access.authenticator.close()
        try:
            async with asyncio.timeout(_FLUSH_TIMEOUT_S):
                await home.stop()
        except Exception as error:  # the next start continues from the previous checkpoint
            log.warning("the last checkpoint failed", reason=str(error) or type(error).__name__)
        heartbeats.leave()
        if cluster is not None:
            await cluster.stop(_FLUSH_TIMEOUT_S)
        if sampler is not None:
            sampler.stop()
        await observer.stop()
        left = await bus.close(_FLUSH_TIMEOUT_S)
        executor.shutdown()
        for shard in home.shards.values():
            shard.spool.close()
        log.info("gateway stopped", unsent=left)


async def _mesh(platform: Platform | None, hosts: HostServer, node: Node) -> Mesh | None:
    """What takes bundles; None if the gateway takes none. Raises BusError."""
    if platform is None:
        return None
    gateway, topic = node.settings.gateway, node.topics.mesh_certificates
    certificates = CertificateTopic(
        node.bus, topic, platform, gateway.mesh.certificates, node.clock, node.counts, node.on_fatal
    )
    await certificates.start()
    numbers = {"certificates": len(certificates), "revocations": platform.known.revocations.number}
    log.info("bundles are taken", name=platform.name, **numbers)
    return Mesh(platform, certificates, hosts, gateway)


def _lease_metrics(
    shared: ClusterSources | None, gateway: GatewaySettings, members: MemberTable, hosts: HostServer
) -> Iterator[LeaseMetrics | StandbyMetrics]:
    """Those of a gateway that shares the shards."""
    if shared is not None:
        yield LeaseMetrics(
            gateway.name,
            gateway.cluster.standbys,
            lambda: shared.leases,
            members,
            shared.changes,
            lambda: 0 if hosts.relays is None else len(hosts.relays),
            asyncio.get_running_loop().time,
        )
        yield StandbyMetrics(lambda: shared.standby_figures())


def _heartbeats(node: Node, hosts: HostServer, shards: OwnedShards | None) -> HeartbeatWriter:
    """What this gateway says about itself to the others. Call it once the process has its number."""
    gateway, load = node.settings.gateway, ProcessLoad()
    return HeartbeatWriter(
        node.bus,
        node.topics.members,
        gateway.name,
        node.numbers.boot,
        gateway.cluster,
        lambda: load.measure(len(hosts.connections) + hosts.http_connections),
        node.clock,
        node.counts,
        tuple if shards is None else shards.standbys.warm,
        tuple if shards is None else shards.starting,
    )


def _on_signals(numbers: Sequence[signal.Signals], loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Calls `act` in the loop at each signal. Not with `loop.add_signal_handler`: a signal it has taken over
    passes through the system's default on its way to being ignored, and would then end the process."""
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))
