"""What stands in for parts of a home that share groups use, in the simulation."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from gateway.errors import ShardLost
from schemas.settings import Settings, process_settings


@cache
def settings(shards: int, name: str) -> Settings:
    found = process_settings({"WAYSTATION_KAFKA__SHARDS": str(shards)})
    return msgspec.structs.replace(found, gateway=msgspec.structs.replace(found.gateway, name=name))


class LogRecord:
    """A record as the gateway reads it."""

    def __init__(self, tp: tuple[str, int], key: bytes, value: bytes | None, offset: int) -> None:
        self._tp, self._key, self._value, self._offset = tp, key, value, offset

    def topic(self) -> str:
        return self._tp[0]

    def partition(self) -> int:
        return self._tp[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return []


class Routes:
    """A toy home reads all of `ingress`: a route is in use at once, from where its reader is."""

    def __init__(self, home: Any) -> None:
        self._home = home

    async def use(self, _filter: str) -> tuple[int, dict[int, int]]:
        return 0, dict(self._home.read_to)

    def unpassed(self, start: dict[int, int]) -> dict[int, int]:
        return start

    def leave(self, _filter: str) -> None:
        """Nothing is read for it alone."""

    def recount(self, _filter: str) -> None:
        """Nothing is read for it alone."""


class Promises:
    """The side of :class:`gateway.shard.promises.Promises` that writers see, over what a toy home has read back."""

    are_read_back = True

    def __init__(self, home: Any) -> None:
        self._home = home
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_lost = False

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    def check(self) -> None:
        if self._is_lost:
            raise ShardLost(self._home.shard)

    def stored(self, offset: int, action: Callable[[], None]) -> None:
        self._home._act(self._home.read_back.stored(offset, action))

    def after_barrier(self, action: Callable[[], None]) -> None:
        self._home.after_barrier(action)

    async def wait(self, write: Callable[[Callable[[], None]], None]) -> None:
        self.check()
        counts: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(counts)
        try:
            write(lambda: None if counts.done() else counts.set_result(None))
            await counts
        finally:
            self._waiting.discard(counts)

    def lose(self) -> None:
        self._is_lost = True
        for counts in self._waiting:
            if not counts.done():
                counts.set_exception(ShardLost(self._home.shard))
