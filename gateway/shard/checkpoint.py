"""Checkpoints: what stays unacknowledged moves to the spool, and the positions to restart from move on.

A checkpoint promises: every effect of what lies before its positions is durable — relinquished, spooled, or written to
the session log. Therefore its order: note the positions; flush progress and windows; then one commit to the spool.

A commit that fails has changed nothing (:meth:`Spool.commit`), and its positions are not in effect: a restart would
read again from those before. What it was to write stays in memory, goes in front of the next batch, and new positions
are taken with that: so the promise holds for whichever commit is the first to succeed, and until then Kafka has it all.
"""

import asyncio
import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from gateway.errors import ShardLost, SpoolError
from gateway.shard.catch_up_reader import IngressCatchUpReader
from gateway.shard.delivery import Deliverer
from gateway.shard.feed_writer import FeedWriter
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import PendingMessage
from gateway.shard.node import Node
from gateway.shard.publishes import InboundPosition
from gateway.shard.session import Session, client_of
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.spool import SpooledDelivery
from gateway.shard.wills import Wills

CATCH_UP = "instant"
INBOUND = "inbound"
SHARD = "shard"
FEEDS = "feeds"
BOOT = "boot"
ASSIGNMENTS = "assignments"
"""Names of a shard's positions in its spool."""

_EXPIRY_SWEEP_S = 5.0


class CatchUpPosition(msgspec.Struct):
    """`reading` offsets by partition, None while the reader rests; subscriptions effective by `done_ms` are done with
    it; direct deliveries are at `begun` or behind it."""

    reading: dict[int, int] | None
    done_ms: int
    begun: dict[int, int] = {}


class Checkpointer:
    """Makes checkpoints of one shard, one at a time. While the spool fails they are tried again, ever later; what they
    would write waits in memory. Above `limits.unspooled_messages` or `unspooled_bytes`, of all shards together, no more
    is read from Kafka. `spawn` starts a coroutine whose failure is fatal.
    """

    def __init__(
        self,
        node: Node,
        shard: Shard,
        spool: ShardSpool,
        inbound: InboundPosition,
        unsettled: set[Session],
        wills: Wills,
        deliverer: Deliverer,
        writer: SessionLogWriter,
        catch_up: IngressCatchUpReader,
        feeds: FeedWriter,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._node = node
        self._spawn = spawn
        self._shard = shard
        self._spool = spool
        self._outage = spool.outage
        self._inbound = inbound
        self._unsettled = unsettled
        self._wills = wills
        self._deliverer = deliverer
        self._writer = writer
        self._catch_up = catch_up
        self._feeds = feeds
        self._next_sweep = 0.0
        self._swept_to = 0
        self._lock = asyncio.Lock()
        self._halted = False
        self._is_over = False
        self._touched: set[Session] = set()
        self._has_finished = False
        self._covering: asyncio.Task[None] | None = None

    async def cover(self) -> None:
        """Returns once a checkpoint that begins later has ended; those who ask meanwhile share it. If the spool fails,
        nobody waits for it. Raises ShardLost."""
        if self._covering is None:
            self._covering = self._spawn(self.run())
        await asyncio.shield(self._covering)
        self._writer.check()
        if self._is_over:
            raise ShardLost(self._shard.number)

    async def run(self, *, at_once: bool = False) -> None:
        """One checkpoint; nothing is written when nothing has changed. After a failure only when it is time to try
        again, or `at_once`. A spool that fails shows in its `outage`. The last one ends when another gateway has the
        shard (:meth:`SessionLogWriter.check`)."""
        async with self._lock:
            self._covering = None  # what is asked from here on may come too late for this one
            if self._halted:
                return
            self._halted = True  # until the end is reached: cancelled half-way, nobody knows what was committed
            began = asyncio.get_running_loop().time()
            try:
                if at_once or self._outage.may_write():
                    await self._run()
                    self._node.checkpoint_seconds.observe(asyncio.get_running_loop().time() - began)
                else:
                    await self._node.work.whole()
                    self._touched |= self._spool_aged()
            except SpoolError as error:
                self._node.counts["spool_failed_write"] += 1
                self._outage.failed("write", error)
            except ShardLost:
                return
            if not self._outage.is_writing:
                self._bound()
            self._halted = False

    async def last(self) -> None:
        """The last one of a home whose shard another takes up: returns once Kafka has it. The next home reports what is
        finished in the spool. Raises ShardLost."""
        async with self._lock:
            if not self._halted:
                self._halted = self._is_over = True
                await self._run(is_last=True)

    async def end(self) -> None:
        """Makes no more checkpoints: another home has the shard."""
        async with self._lock:
            self._halted = self._is_over = True

    async def _run(self, *, is_last: bool = False) -> None:
        shard, spool = self._shard, self._spool
        if not is_last:
            await self._sweep_expired()
        inbound = None if self._wills.is_settling else self._inbound.position()
        shard.inbound_from = shard.inbound_from if inbound is None else inbound
        self._unsettled.intersection_update([s for s in self._unsettled if s.is_unsettled and not s.ended])
        sessions = list(self._unsettled)
        settle = self._deliverer.overflow.settle
        await asyncio.gather(*(self._writer.durable(partial(settle, s)) for s in sessions if s.dropping))
        dirty = [s for s in sessions if s.inbound.is_dirty]
        await self._node.work.whole()
        self._touched |= self._spool_aged()
        self._report_partly_done()
        spool.put_finished(*shard.finished.write(shard.live.values()))
        spool.put_bundles(shard.bundles.take_changed())
        positions = {SHARD: shard.snapshot()}
        sources, feeds = shard.feeds.save(shard.position, shard.live.values())
        spool.put_sources(sources)
        if feeds is not None:
            positions[FEEDS] = feeds
        restart = shard.restart
        has_reread = self._catch_up.has_reread()
        dropped = [(s, s.dropped - s.dropping.keys()) for s in sessions if s.dropped]
        restored = [s for s in sessions if s.is_recovering and not s.backlog] if has_reread else []
        positions[CATCH_UP] = msgspec.msgpack.encode(self._catch_up_position())
        positions[BOOT] = msgspec.msgpack.encode(self._node.numbers.highest(shard.number))
        limit = shard.assignment_numbers.next_limit
        positions[ASSIGNMENTS] = msgspec.msgpack.encode(limit)
        taken = spool.take()
        await asyncio.gather(
            self._node.reporter.flush(shard.number), self._feeds.flush(), *map(self._write_windows, dirty)
        )
        if inbound is not None:
            positions[INBOUND] = msgspec.msgpack.encode(inbound)
        await spool.commit(taken, positions, is_last=is_last)
        if is_last:
            return
        shard.assignment_numbers.reserved(limit)
        shard.bundles.committed()
        self._outage.mended("write")
        self._node.unspooled.note(shard.number, 0, 0)
        for session, places in dropped:
            session.forget_dropped(places)
        touched, self._touched = self._touched, set()
        for session in touched:
            if session.link is None and not session.ended:
                session.forget_spooled(taken.last_row)
        for session in restored:
            if not session.backlog and restart >= shard.reread_to:
                self._deliverer.forget_restored(session)
        if taken.batch.deleted_rows or taken.batch.instructions or self._has_finished:
            await self._relinquish_or_later()

    async def _relinquish_or_later(self) -> None:
        """All is committed; if the finished messages cannot be read, the next checkpoint tries again."""
        self._has_finished = True
        try:
            await self.relinquish_finished()
        except SpoolError as error:
            self._node.counts["spool_failed_read"] += 1
            self._outage.failed("finished", error)
            return
        self._has_finished = False
        self._outage.mended("finished")

    def _bound(self) -> None:
        """The spool cannot be written: what has come and gone meanwhile needs it no more; is the rest too much?"""
        for message, instructions in self._spool.take_done():
            self._node.reporter.relinquish_later(message, self._shard.number, instructions)
        limits = self._node.settings.gateway.limits
        self._node.unspooled.note(self._shard.number, *self._spool.waiting)
        is_full = self._node.unspooled.reaches(limits.unspooled_messages, limits.unspooled_bytes)
        if is_full and not self._outage.is_full:
            self._node.counts["unspooled_full"] += 1
        self._outage.is_full = is_full

    async def relinquish_finished(self) -> None:
        """Relinquishes messages whose last row is gone; they are forgotten once that is stored."""
        finished = await self._spool.finished()
        for f in finished:
            self._node.reporter.relinquish_later(f.message, self._shard.number, f.instructions)
        if finished:
            await self._node.reporter.flush(self._shard.number)
            self._spool.forget(finished)

    def _catch_up_position(self) -> CatchUpPosition:
        return CatchUpPosition(self._shard.order.passed_to, self._catch_up.done_ms, self._shard.order.direct_from)

    async def _write_windows(self, session: Session) -> None:
        session.inbound.written()
        await self._writer.durable(partial(self._writer.windows, session))

    def _spool_aged(self) -> set[Session]:
        """Moves what waits too long into the next commit; returns the sessions that got rows.

        Messages of `egress` move after a time, direct deliveries to persistent ones at once: no log brings them again.
        What was offered before such a one moves too: rows are in the order of the messages (R8).
        """
        now, touched = self._node.clock(), set[Session]()
        oldest = now - self._node.settings.gateway.spool_after_s

        def has_aged(pending: PendingMessage) -> bool:
            return not oldest < pending.pending_since <= now  # above `now`: the clock was set back

        own = [h for h in self._shard.direct.values() if has_aged(h) or self._is_wanted_for_good(h)]
        for pending in heapq.merge(own, _aged(self._shard, has_aged, own), key=lambda pending: pending.number):
            if has_aged(pending):
                self._abandon_qos0(pending)
            self._move_to_spool(pending, touched)
        return touched

    def _is_wanted_for_good(self, pending: PendingMessage) -> bool:
        for delivery in pending.deliveries:
            session = self._shard.sessions.get(delivery.client) if delivery.qos and not delivery.finished else None
            if session is not None and session.persistent:
                return True
        return False

    def _report_partly_done(self) -> None:
        """Outcomes of messages that still wait for others: after a restart nobody would know of them."""
        for pending in self._shard.live.values():
            if pending.outcomes:
                deliveries, pending.outcomes = pending.outcomes, []
                self._node.reporter.outcome(pending.message, pending.shard, pending.instructions, deliveries)

    def _move_to_spool(self, pending: PendingMessage, touched: set[Session]) -> None:
        """What waits at QoS 0 is sent from memory or not at all: it goes on waiting there."""
        shard = self._shard
        waiting = [delivery for delivery in pending.deliveries if delivery.qos and not delivery.finished]
        if not waiting:
            return
        mid = self._spool.add_message(pending.message, pending.instructions)
        shard.note_spooled(pending, mid)
        for delivery in waiting:
            session = shard.sessions.get(delivery.client)
            if session is None:
                raise AssertionError(f"a message waits for {delivery.client!r}, whose session has ended")
            self._spool.add_row(mid, session.spool_key, delivery)
            touched.add(session)
        if pending.outcomes:
            self._node.reporter.outcome(pending.message, pending.shard, pending.instructions, pending.outcomes)
        shard.release(pending)
        pending.spooled, pending.outcomes = True, []
        pending.deliveries.clear()

    def _abandon_qos0(self, pending: PendingMessage) -> None:
        """Gives up what its client has not taken in time; not what waits for the session log, through no fault of the
        client, unless the message moves to the spool, which has no rows for QoS 0."""
        waiting = [delivery for delivery in pending.deliveries if not delivery.finished]
        moves = any(delivery.qos for delivery in waiting)
        for delivery in [e for e in waiting if not e.qos]:
            session = self._shard.sessions.get(delivery.client)
            if session is not None and session.sending and not moves:
                continue
            if session is not None:
                session.remove(delivery)
            self._node.counts["dropped_slow_qos0"] += 1
            self._deliverer.finish(delivery, "dropped")

    async def _sweep_expired(self) -> None:
        running_s = asyncio.get_running_loop().time()
        if running_s < self._next_sweep:
            return
        self._next_sweep = running_s + _EXPIRY_SWEEP_S
        expired = defaultdict[Session, dict[int, SpooledDelivery]](dict)
        found = await self._spool.expired(int(self._node.clock() * 1000), self._swept_to)
        self._swept_to = found[-1].row if found else 0  # some stay: clients have them in hand
        for spooled in found:
            session = self._shard.sessions.get(client_of(spooled.session))
            if session is None or session.spool_key != spooled.session:
                continue
            if spooled.dup or session.in_hand is not None or session.may_be_known(spooled.message.place, spooled.row):
                continue  # the client may have it already
            expired[session][spooled.row] = spooled
        for session, rows in expired.items():
            self._deliverer.backlog.expire(session, rows)


def _aged(shard: Shard, has_aged: Callable[[PendingMessage], bool], own: list[PendingMessage]) -> list[PendingMessage]:
    """Messages of `egress` that have aged, or were offered before the last of `own`, in order."""
    before = own[-1].number if own else 0

    def is_due(pending: PendingMessage) -> bool:
        return has_aged(pending) or pending.number < before or shard.is_for_spool(pending)

    return list(itertools.takewhile(is_due, shard.live.values()))
