"""How a gateway takes part in the cluster, from its start to its end (G4, G14)."""

import asyncio
import socket
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import structlog

from gateway.cluster.connect_ramp import ConnectRamp
from gateway.cluster.lease_table import Lease
from gateway.cluster.life import Life
from gateway.cluster.timings import LeaseTimings, LifeTimings
from gateway.console.cluster import ClusterSources
from gateway.errors import ClusterError
from gateway.host.arriving import Moves
from gateway.host.host_server import HostServer
from gateway.host.listeners import Listeners
from gateway.host.member_tls import MemberTls
from gateway.host.members_listener import open_members_listener
from gateway.leases.control import Control
from gateway.leases.follower import LeasesFollower
from gateway.leases.losses import Losses
from gateway.leases.member_links import MemberLinks
from gateway.leases.owned_shards import OwnedShards
from gateway.leases.owners import Owners
from gateway.links.links import Links, LinkTls
from gateway.members.addresses import links_address
from gateway.members.companions import SILENT_BEATS
from gateway.members.follower import MembersFollower
from gateway.members.record_versions import Reads, RecordVersions
from gateway.members.table import MemberTable
from gateway.observe.standby_metrics import Followed, StandbyFigures
from gateway.shard.home import Home
from gateway.shard.node import Node
from gateway.shard.quarantine import quarantine
from gateway.shard.spool_files import SpoolFiles
from gateway.shard.standby import Standbys
from gateway.sockets.directory import SocketDirectory
from schemas.leases import Claimant
from schemas.members import OLDEST_RECORDS, RECORDS, GatewayAddress, Heartbeat

_READING_GAP_BEATS = 2
"""Heartbeats in a row whose absence tells that this gateway itself reads nothing."""

_SETTLE_S = 15.0
"""How long a start waits until all shards have owners."""

_DRAIN_S = 8.0
"""How long a stop waits until other gateways have the shards. With what follows this stays below the 20 s that a
supervisor allows."""

log = structlog.get_logger(__name__)


class Cluster:
    """This gateway's part in the cluster. `directory` has the files of spools. Make it once the process has its number;
    then `open_links`, `listen`, `take_part`, and at the end `give_up` and `stop`."""

    _takes_part = False

    def __init__(
        self,
        node: Node,
        home: Home,
        hosts: HostServer,
        members: MembersFollower,
        table: MemberTable,
        tls: MemberTls | None,
        directory: Path,
        executor: Executor,
    ) -> None:
        loop, settings = asyncio.get_running_loop(), node.settings
        self._settings = settings.gateway
        self._table = table
        self._tls = tls
        cluster = settings.gateway.cluster
        me = Claimant(settings.gateway.name, node.numbers.boot)
        beat_s = cluster.heartbeat_s
        timings = LifeTimings(silent_s=SILENT_BEATS * beat_s, reading_gap_s=_READING_GAP_BEATS * beat_s)
        files = SpoolFiles(directory, executor, node.counts)
        self.shards = OwnedShards(
            node,
            home,
            lambda shard: loop.run_in_executor(executor, files.open, shard),
            lambda followed: Standbys(
                node.bus,
                node.topics,
                followed,
                cluster.standby_session_bytes,
                node.clock,
                partial(quarantine, node),
                node.on_fatal,
            ),
        )
        self.control = control = Control(
            node.bus,
            node.topics.leases,
            me,
            settings.kafka.shards,
            cluster.standbys,
            self.shards,
            lambda on_read: LeasesFollower(node.bus, node.topics.leases, on_read, loop.time, node.counts),
            node.clock,
            node.on_fatal,
            LeaseTimings(start_s=cluster.start_s),
            Life(me, timings, cluster.members),
            lambda name: self._links.redial(name),
        )
        self.shards.on_superseded = control.superseded
        links = cluster.links
        link_tls = None if tls is None else LinkTls(tls.server.context, lambda: tls.client)
        self._links = Links(me, links.host or settings.gateway.host, links.port, beat_s, link_tls, control.about_life)
        self._member_links = MemberLinks(self._links, control.table, table, me)
        for member in table:
            control.heard(member.name, member.record, is_old=True)
        members.listeners.append(lambda name, record: control.heard(name, record, is_old=False))
        self._versions = RecordVersions(node.numbers.boot, Reads(OLDEST_RECORDS, RECORDS), table)
        self._written = RECORDS
        self._on_fatal = node.on_fatal
        members.listeners.append(self._check_version)
        self._moves = None if not cluster.sockets else self._moves_of(hosts, home, cluster.sockets)
        self.owners = Owners(control.table, table, me, lambda shard: control.phase(shard) == "serving", loop.time)
        is_ramped = cluster.ramp_connects_per_s > 0
        ramp = (cluster.ramp_connects_per_s, cluster.ramp_s, cluster.ramp_wait_s)
        self._ramp = ConnectRamp(*ramp) if is_ramped else None
        self._relays = hosts.relay_to(self.owners, tls, self._ramp)
        control.listeners.append(self._lease_changed)

    async def open_links(self) -> GatewayAddress | None:
        """Opens the listener for links; where others reach it, None if it is off. Raises SettingsError,
        SocketsError."""
        if self._moves is not None:
            self._moves.start()
        return links_address(self._settings, await self._member_links.start(), socket.gethostname())

    async def listen(self, listeners: Listeners) -> GatewayAddress | None:
        """Opens the listener for other gateways; where they reach it, None if it is off. Raises SettingsError."""
        return await open_members_listener(listeners, self._settings, self._tls, self._table)

    async def take_part(self, stopping: asyncio.Future[None], shown: ClusterSources) -> None:
        """Begins, and `shown` knows the leases from then on. Returns once all shards have owners that serve, here or
        elsewhere, or after a while: this gateway can serve the clients of those that have; or once it is `stopping`.
        Raises BusError."""
        starting = asyncio.ensure_future(self.control.start())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # Kafka is away, perhaps
            starting.cancel()
            await asyncio.wait({starting})
            return
        await starting
        self._takes_part = True
        shown.begin(self.control.table, self.control.phase)
        shown.standby_figures = self._standby_figures
        now = asyncio.get_running_loop().time
        self.control.listeners.append(lambda before, after: shown.changes.changed(before, after, now()))
        self.control.listeners.append(Losses(self._member_lost).changed)
        settled = asyncio.ensure_future(self.control.settled())
        await asyncio.wait({settled, stopping}, timeout=_SETTLE_S, return_when=asyncio.FIRST_COMPLETED)
        if not settled.done():
            settled.cancel()
            if not stopping.done():
                table = self.control.table
                log.warning("shards have no owner yet", shards=[n for n in range(len(table)) if not table[n].is_fenced])

    def followed(self) -> dict[int, Followed]:
        """The shards that this gateway keeps warm."""
        standbys = self.shards.standbys
        return {n: Followed(standbys.behind(n), standbys.is_warm(n), standbys.behind_s(n)) for n in standbys.followed()}

    def _standby_figures(self) -> StandbyFigures:
        return StandbyFigures(self._links.states(), self._links.redials, self.followed())

    async def give_up(self) -> None:
        """Other gateways take over this one's shards in order; returns once they are given up, or after a while; at
        once if it has taken no part yet."""
        control = self.control
        if not self._takes_part:
            control.stop()
            return
        control.leave()
        try:
            async with asyncio.timeout(_DRAIN_S):
                await control.drained()
        except TimeoutError:
            left = [shard for shard in range(len(control.table)) if control.owned(shard)]
            log.warning("shards are left at the end of the gateway; others take them over", shards=left)
        control.stop()

    async def stop(self, timeout_s: float) -> None:
        """The last heartbeat is written: nothing is kept warm any more, and links end."""
        self._member_links.stop()
        if self._moves is not None:
            self._moves.stop()
        await self.shards.stop(timeout_s)

    def _check_version(self, name: str, record: Heartbeat) -> None:
        misfit = self._versions.misfit(name, record)
        if misfit is not None:
            self._on_fatal(ClusterError(misfit))
        written = self._versions.written(asyncio.get_running_loop().time())
        if written != self._written:
            self._written = written
            log.info("records between gateways are written in another version", version=written, reads=RECORDS)

    def _member_lost(self, lost: Claimant) -> None:
        per_s = self._settings.cluster.ramp_connects_per_s
        log.warning("a gateway was lost: others take its shards", gateway=lost.name, connects_per_s=per_s)
        if self._ramp is not None:
            self._ramp.begin(asyncio.get_running_loop().time())

    def _moves_of(self, hosts: HostServer, home: Home, directory: str) -> Moves:
        """Connections of shards that move pass between gateways of this machine. Raises SocketsError."""
        moves = home.moved_clients = Moves(hosts, SocketDirectory(Path(directory)), self._settings.name)
        return moves

    def _lease_changed(self, _before: Lease, lease: Lease) -> None:
        self.owners.lease_changed(lease.shard)
        self._relays.owner_changed(lease.shard)
