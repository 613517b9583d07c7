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

import msgspec

from gateway.errors import SpoolError
from gateway.shard.context import HomeContext
from gateway.shard.delivery import Deliverer
from gateway.shard.instant import InstantReader
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import Held
from gateway.shard.session import Session, client_of
from gateway.shard.shard import Shard
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch

INSTANT = "instant"
INBOUND = "inbound"
SHARD = "shard/"
BOOT = "boot"

_EXPIRY_SWEEP_S = 5.0


class InstantPosition(msgspec.Struct):
    """`reading` offsets by partition, None while the reader rests; subscriptions effective by `done_ms` are done with
    it; own copies are at `begun` or behind it."""

    reading: dict[int, int] | None
    done_ms: int
    begun: dict[int, int] = {}


class Checkpointer:
    """Makes checkpoints, one at a time. While the spool fails they are tried again, ever later; what they would write
    waits in memory, and above `limits.unspooled_messages` or `unspooled_bytes` no more is read from Kafka.
    """

    def __init__(
        self, context: HomeContext, deliverer: Deliverer, writer: SessionLogWriter, instant: InstantReader
    ) -> None:
        self._context = context
        self._deliverer = deliverer
        self._writer = writer
        self._instant = instant
        self._committed: dict[str, bytes] = {}
        self._next_sweep = 0.0
        self._lock = asyncio.Lock()
        self._halted = False
        self._touched: set[Session] = set()
        self._has_finished = False
        self._covering: asyncio.Future[None] | None = None

    async def cover(self) -> None:
        """Returns once a checkpoint that begins later has ended; those who ask meanwhile share it. If the spool fails,
        nobody waits for it."""
        if self._covering is None:
            self._covering = asyncio.ensure_future(self.run())
        await asyncio.shield(self._covering)

    async def run(self, *, at_once: bool = False) -> None:
        """One checkpoint; nothing is written when nothing has changed. After a failure only when it is time to try
        again, or `at_once`. A spool that fails shows in `context.outage`."""
        async with self._lock:
            self._covering = None  # what is asked from here on may come too late for this one
            if self._halted:
                return
            self._halted = True  # until the end is reached: cancelled half-way, nobody knows what was committed
            began, now = asyncio.get_running_loop().time(), self._context.clock()
            try:
                if at_once or self._context.outage.may_write(now):
                    await self._run(now)
                    self._context.checkpoint_seconds.observe(asyncio.get_running_loop().time() - began)
                else:
                    await self._context.work.whole()
                    self._touched |= self._spool_aged(now)
            except SpoolError as error:
                self._context.counts["spool_failed_write"] += 1
                self._context.outage.failed("write", error, now)
            if not self._context.outage.is_writing:
                self._bound()
            self._halted = False

    async def _run(self, now: float) -> None:
        context = self._context
        await self._sweep_expired(now)
        inbound = None if context.wills_settling else msgspec.msgpack.encode(context.published_to)
        context.unsettled.intersection_update([s for s in context.unsettled if s.is_unsettled and not s.ended])
        sessions = list(context.unsettled)
        await asyncio.gather(*(self._deliverer.overflow.settle(s) for s in sessions if s.dropping))
        dirty = [s for s in sessions if s.inbound_dirty]
        await context.work.whole()
        self._touched |= self._spool_aged(now)
        self._report_partly_done()
        positions = {f"{SHARD}{shard.number}": shard.snapshot() for shard in context.shards}
        restarts = [shard.restart for shard in context.shards]
        replayed = self._instant.is_replayed()
        dropped = [(s, s.dropped - s.dropping.keys()) for s in sessions if s.dropped]
        restored = [s for s in sessions if s.is_recovering and not s.backlog] if replayed else []
        positions[INSTANT] = msgspec.msgpack.encode(self._instant_position())
        positions[BOOT] = msgspec.msgpack.encode(context.boot)
        batch, context.batch, last_row = context.batch, SpoolBatch(), context.next_row
        await asyncio.gather(context.reporter.flush(), *map(self._write_windows, dirty))
        if inbound is not None:
            positions[INBOUND] = inbound
        batch.positions = {name: raw for name, raw in positions.items() if self._committed.get(name) != raw}
        if not batch.is_empty() or not context.outage.is_writing:
            try:
                await context.spool.call(Spool.commit, batch)
            except SpoolError:
                context.batch = batch.then(context.batch)
                raise
        context.outage.mended("write", now)
        self._committed |= batch.positions
        context.committed_row = last_row
        context.gone_rows.difference_update(batch.deleted_rows)
        for session, places in dropped:
            session.dropped -= places
        touched, self._touched = self._touched, set()
        for session in touched:
            if session.link is None and not session.ended:
                session.forget_spooled(last_row)
        for session in restored:
            if not session.backlog and restarts[session.shard] >= context.shards[session.shard].replay_to:
                session.forget_restored()
        if batch.deleted_rows or batch.instructions or self._has_finished:
            await self._relinquish_or_later(now)

    async def _relinquish_or_later(self, now: float) -> None:
        """All is committed; if the finished messages cannot be read, the next checkpoint tries again."""
        self._has_finished = True
        try:
            await self.relinquish_finished()
        except SpoolError as error:
            self._context.counts["spool_failed_read"] += 1
            self._context.outage.failed("finished", error, now)
            return
        self._has_finished = False
        self._context.outage.mended("finished", now)

    def _bound(self) -> None:
        """The spool cannot be written: what has come and gone meanwhile needs it no more; is the rest too much?"""
        context, limits = self._context, self._context.settings.gateway.limits
        done, rows = context.batch.take_done()
        context.gone_rows -= rows
        for shard, message, instructions in done:
            context.reporter.relinquish(Held(message, shard, -1, 0, instructions), replayed=True)
        batch = context.batch
        is_full = len(batch.messages) >= limits.unspooled_messages or batch.size >= limits.unspooled_bytes
        if is_full and not context.outage.is_full:
            context.counts["unspooled_full"] += 1
        context.outage.is_full = is_full

    async def relinquish_finished(self) -> None:
        """Relinquishes messages whose last row is gone; they are forgotten once that is stored."""
        context = self._context
        finished = await context.spool.call(Spool.finished)
        for f in finished:
            context.reporter.relinquish(Held(f.message, f.shard, -1, 0, f.instructions), replayed=True)
        if finished:
            await context.reporter.flush()
            context.batch.forgotten.extend(f.mid for f in finished)

    def _instant_position(self) -> InstantPosition:
        return InstantPosition(self._instant.positions, self._instant.done_ms, self._instant.begun)

    async def _write_windows(self, session: Session) -> None:
        session.inbound_dirty = False
        written = asyncio.Event()
        self._writer.windows(session, written.set)
        await written.wait()

    def _spool_aged(self, now: float) -> set[Session]:
        """Moves what waits too long into the next commit; returns the sessions that got rows.

        Messages of `egress` move after a time, own copies of persistent sessions at once, for no log brings them again.
        What was offered before such a copy moves too: rows are in the order of the messages (R8).
        """
        oldest = now - self._context.settings.gateway.spool_after_s
        touched: set[Session] = set()
        for shard in self._context.shards:
            own = [held for held in shard.own.values() if held.held_at <= oldest or self._is_wanted_for_good(held)]
            for held in heapq.merge(own, _aged(shard, oldest, own), key=lambda held: held.number):
                if held.held_at <= oldest:
                    self._abandon_qos0(held)
                self._spool(shard, held, touched)
        return touched

    def _is_wanted_for_good(self, held: Held) -> bool:
        for entry in held.entries:
            session = self._context.session(entry.client) if entry.qos and not entry.finished else None
            if session is not None and session.persistent:
                return True
        return False

    def _report_partly_done(self) -> None:
        """Outcomes of messages that still wait for others: after a restart nobody would know of them."""
        for shard in self._context.shards:
            for held in shard.live.values():
                if held.deliveries:
                    deliveries, held.deliveries = held.deliveries, []
                    self._context.reporter.outcome(held.message, held.shard, held.instructions, deliveries)

    def _spool(self, shard: Shard, held: Held, touched: set[Session]) -> None:
        """What waits at QoS 0 is sent from memory or not at all: it goes on waiting there."""
        context = self._context
        waiting = [entry for entry in held.entries if entry.qos and not entry.finished]
        if not waiting:
            return
        mid = context.new_mid()
        context.batch.messages.append((mid, held.shard, held.message, held.instructions))
        shard.note_spooled(held, mid)
        for entry in waiting:
            session = context.session(entry.client)
            if session is None:
                raise AssertionError(f"a message waits for {entry.client!r}, whose session has ended")
            entry.row, may_be_sent = context.new_row(), entry.sent or entry.dup
            touched.add(session)
            context.batch.rows.append(
                (entry.row, mid, session.spool_key, entry.qos, entry.retain, entry.subscription_ids, may_be_sent)
            )
        if held.deliveries:
            context.reporter.outcome(held.message, held.shard, held.instructions, held.deliveries)
        shard.release(held)
        held.spooled, held.deliveries = True, []
        held.entries.clear()

    def _abandon_qos0(self, held: Held) -> None:
        for entry in [e for e in held.entries if not e.finished and not e.qos]:
            session = self._context.session(entry.client)
            if session is not None:
                session.remove(entry)
            self._context.counts["dropped_slow_qos0"] += 1
            self._deliverer.finish(entry, "dropped")

    async def _sweep_expired(self, now: float) -> None:
        if now < self._next_sweep:
            return
        self._next_sweep = now + _EXPIRY_SWEEP_S
        context = self._context
        for spooled in await context.spool.call(Spool.expired, int(now * 1000)):
            session = context.session(client_of(spooled.session))
            if session is None or session.spool_key != spooled.session or session.link is not None:
                continue
            place = (spooled.message.partition, spooled.message.offset)
            if spooled.dup or session.may_be_known(place, spooled.row):
                continue  # the client may have it already
            if spooled.row not in session.rows_in_memory() and spooled.row not in context.gone_rows:
                self._deliverer.expire_spooled(session, spooled)


def _aged(shard: Shard, oldest: float, own: list[Held]) -> list[Held]:
    """Messages of `egress` held since `oldest` or before, or offered before the last of `own`, in order."""
    before = own[-1].number if own else 0
    return list(itertools.takewhile(lambda h: h.held_at <= oldest or h.number < before, shard.live.values()))
