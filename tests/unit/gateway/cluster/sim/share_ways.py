"""How what shards say to one another about share groups gets there in the simulation: by the gateway's own part."""

from collections.abc import Callable
from typing import Any, cast

from gateway.shard.share_messages import sender_of
from gateway.shard.share_ways import ShareWays
from gateway.shard.shares import Shares


class EgressLog:
    """`egress`, as the gateway's own parts write to it."""

    def __init__(self, process: Any) -> None:
        self._process = process

    def produce(self, topic: str, shard: int, key: bytes, value: bytes, headers: Any, done: Any) -> None:
        sender = sender_of(headers)
        assert sender is not None
        stored = lambda _: done(None, None)  # noqa: E731
        self._process.produce((topic, shard), key, (value, headers), sender.epoch, False, stored)


def ways_of(process: Any) -> ShareWays:
    """What shards say to one another gets from this process by these."""

    def find(shard: int, epoch: int) -> Shares | None:
        home = process.homes.get(shard)
        return None if home is None or not home.shares.has_begun or home.epoch < epoch else home.shares.shares

    def soon(flush: Callable[[], None]) -> None:
        process.world.after(0.0, lambda: process.enter(flush))

    return ShareWays(cast(Any, EgressLog(process)), "egress", find, process.ready, soon, fail)


def fail(error: Exception) -> None:
    raise error
