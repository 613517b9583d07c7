"""How a gateway takes part in the cluster, from its start to its end (G4, G14)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import structlog

from gateway.cluster.life import Life
from gateway.cluster.timings import LeaseTimings, LifeTimings
from gateway.leases.control import Control
from gateway.leases.follower import LeasesFollower
from gateway.leases.owned_shards import OwnedShards
from gateway.members.follower import MembersFollower
from gateway.members.table import MemberTable
from gateway.shard.home import Home
from gateway.shard.node import Node
from gateway.shard.shard_spool import open_spool
from schemas.leases import Claimant

_SILENT_BEATS = 3
_READING_GAP_BEATS = 2
"""Heartbeats in a row whose absence tells: of another member, and of what this gateway itself reads."""

_SETTLE_S = 15.0
"""How long a start waits until all shards have owners."""

_DRAIN_S = 8.0
"""How long a stop waits until other gateways have the shards. With what follows this stays below the 20 s that a
supervisor allows."""

log = structlog.get_logger(__name__)


def open_control(
    node: Node, home: Home, members: MembersFollower, table: MemberTable, directory: Path, executor: Executor
) -> Control:
    """This gateway's part in the cluster; `directory` has the files of spools. Call it once the process has its
    number. `start` follows."""
    loop, settings = asyncio.get_running_loop(), node.settings
    cluster = settings.gateway.cluster
    me = Claimant(settings.gateway.name, node.numbers.boot)
    life = Life(
        me,
        LifeTimings(
            silent_s=_SILENT_BEATS * cluster.heartbeat_s, reading_gap_s=_READING_GAP_BEATS * cluster.heartbeat_s
        ),
        cluster.members,
    )
    control = Control(
        node.bus,
        node.topics.leases,
        me,
        settings.kafka.shards,
        cluster.standbys,
        OwnedShards(node, home, lambda shard: open_spool(directory, shard, executor)),
        lambda on_read: LeasesFollower(node.bus, node.topics.leases, on_read, loop.time, node.counts),
        node.clock,
        node.on_fatal,
        LeaseTimings(),
        life,
    )
    for member in table:
        control.heard(member.name, member.record, is_old=True)
    members.listeners.append(lambda name, record: control.heard(name, record, is_old=False))
    return control


async def take_part(control: Control, stopping: asyncio.Future[None], started: Callable[[], None]) -> None:
    """Begins, and calls `started` once what was on `leases` is read. Returns once all shards have owners that serve,
    here or elsewhere, or after a while: this gateway can serve the clients of those that have. Raises BusError."""
    await control.start()
    started()
    settled = asyncio.ensure_future(control.settled())
    await asyncio.wait({settled, stopping}, timeout=_SETTLE_S, return_when=asyncio.FIRST_COMPLETED)
    if not settled.done():
        settled.cancel()
        if not stopping.done():
            without = [shard for shard in range(len(control.table)) if not control.table[shard].is_fenced]
            log.warning("shards have no owner yet", shards=without)


async def give_up(control: Control) -> None:
    """Other gateways take over this one's shards in order; returns once they have claimed them, or after a while."""
    control.drain()
    try:
        await asyncio.wait_for(control.drained(), _DRAIN_S)
    except TimeoutError:
        left = [shard for shard in range(len(control.table)) if control.owned(shard)]
        log.warning("shards are left at the end of the gateway; others take them over", shards=left)
    control.stop()
