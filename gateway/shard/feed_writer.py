"""What a home writes to its own shard's `egress` about redundant feeds: the timer's decisions, and copies that no
router sends it yet (S3).

A decision counts once it is read back, behind all that has come before it. While one is on its way nothing else is
decided. A copy that the catch-up reader has read, of a message appended before the route of a new subscription takes
effect, is written for all subscribers of the shard. The reader may be behind the routers: then what is missing is on
its way, and nothing is given up, but for as long as the deadline allows.

Where gateways share the shards, the first record is a fence: nothing is decided before it is read back, and behind it
nothing counts that homes of lower epochs have written.
"""

import asyncio
from typing import Any, Final

from gateway.errors import BusError
from gateway.record import Record
from gateway.shard.feed_records import Decided, FeedCopy, Written, copy_record, decision_record, fence_record
from gateway.shard.node import Node
from gateway.shard.routes import ShardRoutes
from gateway.shard.shard import Shard
from schemas.feed_topics import feed_route_keys

_AGAIN_S: Final = 0.025
"""After how long the timer looks again, if what is due may not be decided yet."""


class FeedWriter:
    """Of one shard, which its home has in `epoch`; 0 if it shares shards with none."""

    def __init__(self, node: Node, shard: Shard, routes: ShardRoutes, epoch: int) -> None:
        self._node = node
        self._epoch = epoch
        self._shard = shard
        self._feeds = shard.feeds
        self._routes = routes
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._unstored = 0
        self._stored: asyncio.Future[None] | None = None
        self._written_to = 0
        self._instructed_to: dict[int, int] = {}
        self._behind_since: float | None = None

    def begin(self) -> None:
        """The home has its state, and begins to apply what comes."""
        if self._epoch and self._node.settings.feeds.names:
            self._write(fence_record(self._epoch))

    def instructed(self, copy: FeedCopy) -> None:
        """A copy has come, by a router or not."""
        if copy.instruction is not None:
            partition, offset = copy.place
            self._instructed_to[partition] = offset + 1

    def copy(self, record: Record) -> None:
        """Writes a copy that the shard needs and does not get."""
        self._write(copy_record(record, self._epoch))

    def pause_unwanted(self) -> None:
        """Feeds for which the shard has no route any more, nor one that lingers: what comes later follows no gap."""
        for name in self._feeds.awake():
            if all(self._routes.effective_ms(key) is None for key in feed_route_keys(name)):
                self._decide(name, [Decided("pause")])

    def schedule(self) -> None:
        """Records were applied: sets the timer to when there is something to decide."""
        due_ms = None if self._is_stopped else self._feeds.due_ms()
        if due_ms is None or self._is_busy:
            self._cancel()
        elif self._timer is None or due_ms / 1000 < self._timer.when():
            self._cancel()
            self._timer = asyncio.get_running_loop().call_at(due_ms / 1000, self._decide_due)

    async def flush(self) -> None:
        """Returns once all that is written is stored."""
        while self._unstored:
            if self._stored is None:
                self._stored = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._stored)

    def stop(self) -> None:
        """Decides nothing more: another home has the shard."""
        self._is_stopped = True
        self._cancel()

    @property
    def _is_busy(self) -> bool:
        """Whether something that was written is not read back yet."""
        return self._unstored > 0 or self._shard.position < self._written_to

    def _decide_due(self) -> None:
        self._timer = None
        if self._node.stopping.is_set() or self._is_busy:
            return
        loop = asyncio.get_running_loop()
        for name, decisions in [*self._feeds.proposals(loop.time() * 1000, may_give_up=self._may_give_up())]:
            self._decide(name, decisions)
        if not self._is_busy:
            self._timer = loop.call_later(_AGAIN_S, self._decide_due)

    def _may_give_up(self) -> bool:
        """Not while the catch-up reader has still to read what is before copies that have come."""
        passed_to, now = self._shard.order.passed_to, asyncio.get_running_loop().time()
        is_behind = passed_to is not None and any(
            passed_to.get(partition, 0) < end for partition, end in self._instructed_to.items()
        )
        if not is_behind:
            self._behind_since = None
            return True
        self._behind_since = now if self._behind_since is None else self._behind_since
        return now - self._behind_since >= self._node.settings.gateway.feeds.deadline_ms / 1000

    def _decide(self, name: str, decisions: list[Decided]) -> None:
        self._write(decision_record(name, decisions, self._epoch))

    def _write(self, written: Written) -> None:
        self._unstored += 1
        place = self._node.topics.egress, self._shard.number
        self._node.bus.produce(*place, written.key, written.value, written.headers, self._done)

    def _done(self, error: Any, record: Record) -> None:
        self._unstored -= 1
        if error is not None:
            self._node.on_fatal(BusError(f"cannot write about a redundant feed to egress: {error.str()}"))
            return
        self._written_to = max(self._written_to, record.offset() + 1)
        if not self._unstored:
            stored, self._stored = self._stored, None
            if stored is not None:
                stored.set_result(None)
            self.schedule()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
