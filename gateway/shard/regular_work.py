"""What a gateway has to do again and again, for all its shards, until it stops."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import structlog

from gateway.errors import BusError
from gateway.shard.ingress_reader import IngressReader
from gateway.shard.known_routes import KnownRoutes
from gateway.shard.node import Node
from gateway.shard.presence import PresenceReporter
from gateway.shard.shard_home import ShardHome

_HOUSEKEEPING_S = 1.0
_ENDS_EVERY_S = 10.0
"""How often a gateway learns where `ingress` ends, so that a start reads no more than that again."""

_ROUTES_EVERY_S = 10.0
"""How often a gateway that shares shards reads the topic `routes` on, at most: several times within `route_lead_s`."""

log = structlog.get_logger(__name__)


class RegularWork:
    """`shards`: the homes that are here at each moment, by number. `routes`: None unless gateways share shards.
    `go_on` lets records that wait go on. Each method returns when the gateway stops; run all three."""

    def __init__(
        self,
        node: Node,
        shards: Mapping[int, ShardHome],
        ingress: IngressReader,
        routes: KnownRoutes | None,
        presence: PresenceReporter,
        go_on: Callable[[], object],
    ) -> None:
        self._node = node
        self._shards = shards
        self._ingress = ingress
        self._routes = routes
        self._presence = presence
        self._go_on = go_on
        self._next_ends = self._next_routes = 0.0

    async def checkpoints(self) -> None:
        while await self._pause(self._node.settings.gateway.checkpoint_s):
            await asyncio.gather(*(home.checkpoint() for home in self._shards.values()))

    async def heartbeats(self) -> None:
        while await self._pause(self._node.settings.presence.heartbeat_s):
            self._presence.heartbeat()

    async def housekeeping(self) -> None:
        while await self._pause(_HOUSEKEEPING_S):
            now, running_s = self._node.clock(), asyncio.get_running_loop().time()  # `now` may be set back
            self._node.message_presence.forget(now)
            try:
                await self._look_where_ingress_ends(running_s)
                await self._look_at_routes(running_s)
                for home in list(self._shards.values()):
                    if await home.keep(now):
                        self._go_on()
            except BusError as error:  # the next time, perhaps
                log.warning("housekeeping failed", reason=str(error))

    async def _look_where_ingress_ends(self, running_s: float) -> None:
        """Publishes say it only of partitions that they go to: positions of shards without any follow this."""
        if running_s < self._next_ends:
            return
        self._next_ends = running_s + _ENDS_EVERY_S
        await self.note_end_of_ingress(*self._shards.values())

    async def note_end_of_ingress(self, *homes: ShardHome) -> None:
        """The next start of these shards reads nothing again that is on `ingress` now. Raises BusError."""
        ends = await self._ingress.end_offsets()
        for home in homes:
            home.inbound.nothing_before(ends)

    async def _look_at_routes(self, running_s: float) -> None:
        """So that a takeover has little to read, and what an earlier owner of a shard drops late is added again."""
        if self._routes is None or running_s < self._next_routes:
            return
        self._next_routes = running_s + min(_ROUTES_EVERY_S, self._node.settings.router.route_lead_s / 4)
        await self._routes.read_on()
        for number, home in self._shards.items():
            if not home.promises.is_lost:
                home.routes.mend(self._routes.dropped(number))

    async def _pause(self, seconds: float) -> bool:
        """False if the gateway stops meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._node.stopping.wait()
        return not self._node.stopping.is_set()
