"""The shards of this gateway as the keeper of leases sees them: it starts and ends their homes (G4, Q7)."""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import structlog

from gateway.errors import SpoolError
from gateway.shard.home import Home
from gateway.shard.node import Node
from gateway.shard.shard_spool import SpoolThread

log = structlog.get_logger(__name__)


class OwnedShards:
    """`open_file` opens the file of a shard's spool, and makes it if there is none: it is a view of what Kafka has."""

    def __init__(self, node: Node, home: Home, open_file: Callable[[int], SpoolThread]) -> None:
        self._node, self._home = node, home
        self._open_file = open_file

    async def start_shards(self, owned: Mapping[int, int], is_owned: Callable[[int, int], bool]) -> list[int]:
        """See :class:`gateway.leases.control.ShardHomes`."""
        files: dict[int, SpoolThread] = {}
        try:
            for shard in owned:
                files[shard] = self._open_file(shard)
        except SpoolError:
            for file in files.values():
                file.close()
            raise
        began = self._node.clock()
        started = await self._home.start_shards(files, owned, is_owned)
        took_ms = int((self._node.clock() - began) * 1000)
        log.info("shards started", shards=started, epochs={shard: owned[shard] for shard in started}, took_ms=took_ms)
        return started

    async def hand_over(self, number: int) -> None:
        """See :class:`gateway.leases.control.ShardHomes`."""
        with suppress(SpoolError):  # the next home reads more again
            await self._home.hand_over(number)
        log.info("shard given up", shard=number)

    def abandon(self, number: int) -> Coroutine[Any, Any, None]:
        """See :class:`gateway.leases.control.ShardHomes`."""
        if number in self._home.shards:
            log.warning("another gateway has taken over a shard", shard=number)
        return self._home.abandon(number)

    def follow(self, number: int) -> None:
        """See :class:`gateway.leases.control.ShardHomes`."""

    def unfollow(self, number: int) -> None:
        """See :class:`gateway.leases.control.ShardHomes`."""

    def hold(self) -> None:
        """See :class:`gateway.leases.control.ShardHomes`."""
        self._node.ready.hold()

    def resume(self) -> None:
        """See :class:`gateway.leases.control.ShardHomes`."""
        self._node.ready.resume()
