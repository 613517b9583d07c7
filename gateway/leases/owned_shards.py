"""The shards of this gateway as the keeper of leases sees them: it starts and ends their homes, and keeps others' warm
(G4, Q7, Q9)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any

import structlog

from gateway.errors import SpoolError
from gateway.shard.home import Home
from gateway.shard.node import Node
from gateway.shard.shard_spool import SpoolThread
from gateway.shard.spool_files import OpenedFiles
from gateway.shard.standby import Standbys
from gateway.shard.start_steps import Started, Steps
from schemas.members import MOST_STARTING

log = structlog.get_logger(__name__)


class OwnedShards:
    """`open_file` opens the file of a shard's spool, and makes it if there is none: it is a view of what Kafka has.
    `standbys_of` makes the standbys over the files of shards that are followed."""

    def __init__(
        self,
        node: Node,
        home: Home,
        open_file: Callable[[int], Awaitable[SpoolThread]],
        standbys_of: Callable[[Mapping[int, SpoolThread]], Standbys],
    ) -> None:
        self._node, self._home = node, home
        self._open_file = open_file
        self._followed: dict[int, SpoolThread] = {}
        self._starting: dict[int, Steps] = {}
        self._told: dict[int, int] = {}  # the one named last is last
        self.standbys = standbys_of(self._followed)
        self.on_superseded: Callable[[int, int, int], None] = lambda _shard, _epoch, _fence: None
        """Gets a shard, the epoch of its home here, and the higher fence that this home has read."""
        home.on_superseded = self._superseded
        node.hold.begin(asyncio.get_running_loop().time)

    async def start_shards(self, owned: Mapping[int, int], is_owned: Callable[[int, int], bool]) -> Started:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        now = asyncio.get_running_loop().time
        began, steps = now(), Steps(now)
        self._starting |= dict.fromkeys(owned, steps)
        try:
            return await self._start(owned, is_owned, steps, began)
        finally:
            for shard in owned:
                if self._starting.get(shard) is steps:
                    del self._starting[shard]
                    self._told.pop(shard, None)

    def starting(self) -> list[int]:
        """The shards whose start has made progress since they were named before: MOST_STARTING at most, and first those
        that have not been named for longest."""
        progressed = [shard for shard, steps in self._starting.items() if steps.done != self._told.get(shard)]
        order = {shard: place for place, shard in enumerate(self._told)}
        named = sorted(progressed, key=lambda shard: order.get(shard, -1))[:MOST_STARTING]
        for shard in named:
            self._told.pop(shard, None)
            self._told[shard] = self._starting[shard].done
        return named

    async def _start(
        self, owned: Mapping[int, int], is_owned: Callable[[int, int], bool], steps: Steps, began: float
    ) -> Started:
        warm = sorted(shard for shard in owned if self.standbys.is_warm(shard))
        started = await self._home.start_shards(owned, partial(self._open_files, list(owned)), is_owned, steps)
        epochs = {shard: owned[shard] for shard in started.serving}
        took_ms = round(1000 * (asyncio.get_running_loop().time() - began))
        log.info("shards started", epochs=epochs, warm=warm, took_ms=took_ms, steps_ms=steps.took_ms)
        return started

    async def _open_files(self, shards: Collection[int]) -> OpenedFiles:
        """Those of standbys, as these have left them; others are opened."""
        opened = OpenedFiles({}, {}, {})
        for shard, values in zip(shards, await asyncio.gather(*map(self.standbys.release, shards)), strict=True):
            if values is not None:
                opened.warm[shard] = values
            try:
                is_followed = shard in self._followed
                opened.files[shard] = self._followed.pop(shard) if is_followed else await self._open_file(shard)
            except SpoolError as error:
                opened.failed[shard] = error
        return opened

    async def hand_over(self, number: int, to: str, then: Callable[[], None]) -> None:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        await self._home.hand_over(number, to, then)
        log.info("shard given up", shard=number, to=to)

    def abandon(self, number: int) -> Coroutine[Any, Any, None]:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        if number in self._home.shards:
            log.warning("another gateway has taken over a shard", shard=number)
        return self._home.abandon(number)

    def _superseded(self, number: int, epoch: int, fence: int) -> None:
        """Nothing that its home promises holds any more. The lease, which ends it, follows, or the keeper claims it."""
        log.warning("another gateway has begun a later epoch of a shard", shard=number, epoch=epoch, fence=fence)
        self.on_superseded(number, epoch, fence)

    async def follow(self, number: int) -> None:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        if number not in self._followed:
            self._followed[number] = await self._open_file(number)
        self.standbys.follow(number)

    async def unfollow(self, number: int) -> None:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        await self.standbys.release(number)
        file = self._followed.pop(number, None)
        if file is not None:
            file.close()

    def hold(self) -> None:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        self._node.hold.hold()

    def resume(self) -> None:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        self._node.hold.resume()

    def stepped(self, now: float, longest_s: float) -> None:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        self._node.hold.stepped(now, longest_s)

    def stopped(self) -> None:
        """See :class:`gateway.leases.shard_homes.ShardHomes`."""
        self._node.hold.stopped()

    async def stop(self, timeout_s: float) -> None:
        """Nothing is kept warm any more. Before the bus and the spools' thread end."""
        await self.standbys.stop(timeout_s)
        for file in self._followed.values():
            file.close()
