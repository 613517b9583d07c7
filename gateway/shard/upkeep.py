"""What the home of one shard has to do every second, whatever its clients do."""

from collections.abc import Callable

from gateway.shard.catch_up_reader import IngressCatchUpReader
from gateway.shard.egress_consumer import EgressConsumer
from gateway.shard.feed_writer import FeedWriter
from gateway.shard.node import Node
from gateway.shard.promises import Promises
from gateway.shard.retained_mender import RetainedMender
from gateway.shard.routes import ShardRoutes
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.shares import Shares
from gateway.shard.subscribing import Subscriber


class Upkeep:
    """Its parts are those of the shard's home. `broker_ms` gives the broker's time."""

    def __init__(
        self,
        node: Node,
        state: Shard,
        spool: ShardSpool,
        routes: ShardRoutes,
        promises: Promises,
        feeds: FeedWriter,
        subscriber: Subscriber,
        shares: Shares,
        reader: IngressCatchUpReader,
        egress: EgressConsumer,
        broker_ms: Callable[[], int],
    ) -> None:
        self._state = state
        self._spool = spool
        self._routes = routes
        self._promises = promises
        self._feeds = feeds
        self._mender = RetainedMender(node, state.number)
        self._subscriber = subscriber
        self._shares = shares
        self._reader = reader
        self._egress = egress
        self._broker_ms = broker_ms

    async def run(self, now: float) -> bool:
        """Whether records that wait may go on by now. Raises BusError."""
        if self._routes.are_unused(now):
            self._promises.after_barrier(lambda: self._routes.drop_unused(now))
        self._feeds.pause_unwanted()
        self._mender.run(self._spool.epoch)
        if not self._state.order.waiting:  # it may be among them
            self._subscriber.forget_retained(now)
        self._shares.sweep()
        has_passed = [await self._egress.pass_deleted(), await self._reader.pass_deleted()]
        has_ended = await self._reader.end_if_passed(self._broker_ms())
        return any(has_passed) or has_ended or bool(self._state.order.waiting) or self._egress.is_paused
