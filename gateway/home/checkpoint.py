"""Checkpoints: what stays unacknowledged moves to the spool, and the positions to restart from move on.

A checkpoint promises: every effect of what lies before its positions is durable — relinquished, spooled, or written to
the session log. Therefore its order: note the positions; flush progress and windows; then one commit to the spool.
"""

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from gateway.home.context import HomeContext
from gateway.home.delivery import Deliverer
from gateway.home.instant import InstantReader
from gateway.home.log_writer import SessionLogWriter
from gateway.home.messages import Entry, Held
from gateway.home.session import Session
from gateway.home.spool import Spool, SpoolBatch

INSTANT = "instant"
INBOUND = "inbound"
SHARD = "shard/"

_EXPIRY_SWEEP_S = 5.0


class InstantPosition(msgspec.Struct):
    """`reading` offsets by partition, None while the reader rests; subscriptions effective by `done_ms` need it no more."""

    reading: dict[int, int] | None
    done_ms: int


class Checkpointer:
    """Makes checkpoints, one at a time. `inbound` are the offsets of `ingress`, by partition, up to which this gateway's
    own publishes are acknowledged."""

    def __init__(
        self, context: HomeContext, deliverer: Deliverer, writer: SessionLogWriter, instant: InstantReader
    ) -> None:
        self._context = context
        self._deliverer = deliverer
        self._writer = writer
        self._instant = instant
        self._committed: dict[str, bytes] = {}
        self._next_sweep = 0.0
        self.inbound: dict[int, int] = {}

    async def run(self) -> None:
        """One checkpoint; nothing is written when nothing has changed."""
        context = self._context
        now = context.clock()
        await self._sweep_expired(now)
        inbound = msgspec.msgpack.encode(self.inbound)
        dirty = [s for shard in context.shards for s in shard.sessions.values() if s.inbound_dirty]
        self._spool_aged(now)
        positions = {f"{SHARD}{shard.number}": shard.snapshot() for shard in context.shards}
        restarts = [shard.restart for shard in context.shards]
        settled = [(s, list(s.settled)) for shard in context.shards for s in shard.sessions.values() if s.settled]
        positions[INSTANT] = msgspec.msgpack.encode(self._instant_position())
        batch, context.batch = context.batch, SpoolBatch()
        await asyncio.gather(context.reporter.flush(), *map(self._write_windows, dirty))
        positions[INBOUND] = inbound
        batch.positions = {name: raw for name, raw in positions.items() if self._committed.get(name) != raw}
        if not (batch.positions or batch.messages or batch.rows or batch.deleted_rows or batch.forgotten):
            return
        touched = bool(batch.deleted_rows)
        await context.spool.call(Spool.commit, batch)
        self._committed |= batch.positions
        for shard, restart in zip(context.shards, restarts, strict=True):
            shard.committed_restart = restart
            if restart >= shard.recovered_to:
                self._forget_restored(shard.sessions.values())
        deleted_rows = set(batch.deleted_rows)
        for session, places in settled:
            restart = context.shards[session.shard].committed_restart
            for place in places:
                position, row = session.settled[place]
                if row in deleted_rows if row is not None else position < restart:
                    del session.settled[place]
        if touched:
            await self.relinquish_finished()

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
        return InstantPosition(
            dict(self._instant.positions) if self._instant.positions else None, self._instant.done_ms
        )

    async def _write_windows(self, session: Session) -> None:
        session.inbound_dirty = False
        written = asyncio.Event()
        self._writer.windows(session, written.set)
        await written.wait()

    def _spool_aged(self, now: float) -> None:
        """Moves what waits too long into the next commit: messages of `egress` after a time, own copies at once."""
        context = self._context
        oldest = now - self._context.settings.gateway.spool_after_s
        offline: set[Session] = set()
        for held in list(self._aged(oldest)):
            self._spool(held, offline)
        for client in list(context.own_copies):
            session = self._context.session(client)
            if session is not None and session.persistent:
                for held in self._own_held(session):
                    self._spool(held, offline)
            context.own_copies.discard(client)
        for session in offline:
            session.forget_spooled()

    def _aged(self, oldest: float) -> Iterator[Held]:
        for shard in self._context.shards:
            for held in shard.live.values():
                if held.held_at > oldest:
                    break
                yield held

    def _own_held(self, session: Session) -> list[Held]:
        waiting = [*session.queue, *session.tail, *session.in_flight.values()]
        return [e.held for e in waiting if e.row is None and e.held.position < 0 and not e.finished]

    def _spool(self, held: Held, offline: set[Session]) -> None:
        context = self._context
        for entry in [e for e in held.entries if not e.finished and not e.qos]:
            self._abandon_qos0(entry)
        waiting = [entry for entry in held.entries if not entry.finished]
        if not waiting:
            return
        mid = context.new_mid()
        context.batch.messages.append((mid, held.shard, held.message, held.instructions))
        for entry in waiting:
            entry.row = context.new_row()
            context.batch.rows.append(
                (entry.row, mid, entry.client, entry.qos, entry.retain, entry.subscription_ids, entry.sent)
            )
            session = context.session(entry.client)
            if session is not None and session.link is None:
                offline.add(session)
        if held.deliveries:
            context.reporter.outcome(held.message, held.shard, held.instructions, held.deliveries)
        context.shards[held.shard].live.pop(held.position, None)
        held.entries.clear()

    def _abandon_qos0(self, entry: Entry) -> None:
        session = self._context.session(entry.client)
        if session is not None and entry in session.queue:
            session.queue.remove(entry)
        self._context.counts["dropped_slow_qos0"] += 1
        self._deliverer.finish(entry, "dropped")

    async def _sweep_expired(self, now: float) -> None:
        if now < self._next_sweep:
            return
        self._next_sweep = now + _EXPIRY_SWEEP_S
        for spooled in await self._context.spool.call(Spool.expired, int(now * 1000)):
            session = self._context.session(spooled.session)
            if session is not None and session.link is None and spooled.row not in session.rows_in_memory():
                self._deliverer.expire_spooled(session, spooled)

    @staticmethod
    def _forget_restored(sessions: Iterable[Session]) -> None:
        """What was finished before a restart cannot come again once all of it is read."""
        for session in sessions:
            if session.restored and not session.backlog:
                session.restored = {place: r for place, r in session.restored.items() if r.packet_id}
