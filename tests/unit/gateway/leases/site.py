"""A site of gateways that share the shards by leases, over one broker in memory and in virtual time."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gateway.cluster.life import Life
from gateway.cluster.timings import LeaseTimings, LifeTimings
from gateway.leases.control import Control
from gateway.leases.follower import LeasesFollower
from gateway.leases.owned_shards import OwnedShards
from gateway.members.follower import MembersFollower
from gateway.members.heartbeats import HeartbeatWriter
from gateway.members.table import MemberTable
from gateway.record import Record
from gateway.shard.home import Home
from gateway.shard.quarantine import quarantine
from gateway.shard.shard_spool import SpoolThread
from gateway.shard.standby import Standbys
from schemas.leases import Claimant
from schemas.members import GatewayLoad
from schemas.settings import Settings
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.two_gateways import Either, Gateway, TwoGateways

SETTLED_S = 2.0
"""Longer than it takes until all shards of a lost gateway have another owner."""


class ClusterGateway(Gateway):
    """One process that takes part in the cluster."""

    def __init__(self, site: "Site", directory: Path, name: str) -> None:
        super().__init__(site, directory)
        gateway = msgspec.structs.replace(self.node.settings.gateway, name=name)
        self.node.settings = msgspec.structs.replace(self.node.settings, gateway=gateway)
        self.node.on_fatal = self._failed
        self.name = name
        self.control: Control
        self.shards: OwnedShards
        self.heartbeats: HeartbeatWriter
        self.lag_s = 0.0

    async def join(self) -> "ClusterGateway":
        """As gateway.app starts it."""
        node, site, loop = self.node, self._harness, asyncio.get_running_loop()
        self.home = Home(node, {})
        self.bus.start(self._records)
        table = MemberTable(100, 2.0)
        members = MembersFollower(self.bus, site.topics.members, table, loop.time, node.counts, node.broker_clock)
        await members.start()
        earlier = table.get(self.name)
        node.numbers.begin(site.clock(), 0 if earlier is None else earlier.record.boot)
        me = Claimant(self.name, node.numbers.boot)
        settings = node.settings.gateway.cluster
        self.shards = shards = OwnedShards(
            node,
            self.home,
            self._open,
            lambda files: Standbys(
                self.bus, site.topics, files, 1 << 20, site.clock, partial(quarantine, node), node.on_fatal
            ),
        )
        self.control = Control(
            self.bus,
            site.topics.leases,
            me,
            node.settings.kafka.shards,
            settings.standbys,
            shards,
            lambda on_read: LeasesFollower(self.bus, site.topics.leases, on_read, loop.time, node.counts),
            site.clock,
            node.on_fatal,
            LeaseTimings(),
            Life(me, LifeTimings()),
        )
        shards.on_superseded = self.control.superseded
        for member in table:
            self.control.heard(member.name, member.record, is_old=True)
        members.listeners.append(lambda name, record: self.control.heard(name, record, is_old=False))
        await self.home.start()
        self.heartbeats = HeartbeatWriter(
            self.bus,
            site.topics.members,
            self.name,
            me.boot,
            settings,
            GatewayLoad,
            site.clock,
            node.counts,
            shards.standbys.warm,
            shards.starting,
        )
        self.control.on_drain = self.heartbeats.drain
        self.heartbeats.join()
        self.heartbeats.serve({})
        await self.control.start()
        return self

    async def _open(self, number: int) -> SpoolThread:
        return self._spool(number)

    def _failed(self, error: Exception) -> None:
        """What a process that was killed would have complained about happens to nobody."""
        if self.is_up:
            self._harness.fatal.append(error)

    def _records(self, batch: list[Record]) -> asyncio.Future[None] | None:
        """What the consumer brings reaches the home after `lag_s`."""
        if not self.lag_s:
            return self.home.records(batch)
        loop = asyncio.get_running_loop()
        applied: asyncio.Future[None] = loop.create_future()

        def arrive() -> None:
            rest = self.home.records(batch)
            if rest is None:
                applied.set_result(None)
            else:
                rest.add_done_callback(lambda _: applied.set_result(None))

        loop.call_later(self.lag_s, arrive)
        return applied

    def kill(self) -> None:
        was_up = self.is_up
        super().kill()
        if was_up:  # nothing of it reaches the broker any more
            self.control.stop()
            self.heartbeats.leave()


class Site(TwoGateways):
    """Gateways join and are lost; clients find the one that has their shard."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        super().__init__(directory, **limits)
        self.members: list[ClusterGateway] = []
        self.environment["WAYSTATION_GATEWAY__CLUSTER__ENABLED"] = "true"

    def settings(self) -> Settings:
        return HomeHarness.settings(self)

    async def start(self, gateways: int = 3) -> "Site":
        self.home = Either(self.gateways)  # type: ignore[assignment]
        self.is_up = True
        for number in range(gateways):
            await self.join(f"gateway-{number}")
        await turn(SETTLED_S)
        return self

    async def join(self, name: str) -> ClusterGateway:
        """A gateway that joins, with an empty disk."""
        gateway = ClusterGateway(self, self._path / f"{name}-{len(self.gateways)}", name)
        self.gateways.append(gateway)
        self.members.append(gateway)
        await gateway.join()
        return gateway

    def owner_of(self, shard: int) -> ClusterGateway:
        """Who has a shard."""
        return next(member for member in self.members if member.is_up and shard in member.home.shards)

    async def take_up(self) -> None:
        """Whoever is up takes over by itself."""
        await turn(SETTLED_S)

    def spool_rows(self) -> int:
        """In the files of the shards that gateways have."""
        rows = 0
        for gateway in self.gateways:
            for number in gateway.home.shards if gateway.is_up else ():
                rows += sum(count for count, _ in gateway.spools.files[number].inline.backlogs().values())
        return rows
