"""Delivering: a held message into sessions' queues, queues into links, and what becomes of each recipient's share."""

from collections.abc import Callable
from typing import Protocol

from gateway.shard.backlog import Backlog
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import GROUP_MARK, Entry, Held, Outcome
from gateway.shard.node import Node
from gateway.shard.operations import Tasks
from gateway.shard.overflow import Overflow
from gateway.shard.session import Session
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from mqtt.codes import ReasonCode
from schemas.events import Delivery

_CHUNK = 64


class Shares(Protocol):
    """What is apart for share groups and their members."""

    def pump(self, session: Session) -> None:
        """Gives what a group has to its members."""
        ...

    def pumped(self, session: Session) -> None:
        """A session was sent what its client takes now."""
        ...

    def finished(self, entry: Entry, outcome: Outcome) -> None:
        """A session is finished with what a group has assigned to it."""
        ...


class Deliverer:
    """Moves entries through the sessions of a shard: queued → sent → finished; a message whose last recipient is
    finished is relinquished. `shares` are what share groups need beside. `tasks` are those of the shard; `too_slow`
    ends the connection of a session."""

    def __init__(
        self,
        node: Node,
        shard: Shard,
        spool: ShardSpool,
        writer: SessionLogWriter,
        shares: Shares,
        unsettled: set[Session],
        tasks: Tasks,
        too_slow: Callable[[Session], None],
    ) -> None:
        self._clock = node.clock
        self._counts = node.counts
        self._reporter = node.reporter
        self._ready = node.ready
        self._shard = shard
        self._spool = spool
        self._writer = writer
        self._shares = shares
        self.backlog = Backlog(spool, self, node.clock, tasks.spawn)
        self.load = self.backlog.load
        self.overflow = Overflow(node.settings.gateway.limits, self, writer, unsettled, tasks.soon, too_slow)

    def offer(self, session: Session, held: Held, entry: Entry) -> None:
        """Gives a session its share of a message. QoS 0 goes to connected clients only."""
        if entry.qos == 0:
            self._offer_qos0(session, held, entry)
            return
        if session.replayed is not None and held.message.partition >= 0 and not session.restore(entry):
            self._note(entry, session.earlier_outcome(entry))
            held.finished.append(entry.client)  # the message may outlast what the session remembers
            return
        has_room = self.overflow.has_room(session, entry)
        if not has_room and not (session.persistent and entry.is_brought_again):
            self._drop(entry)
            return
        held.pending += 1
        held.entries.append(entry)
        if not has_room:
            self.overflow.drop(session, entry)
            return
        if held.message.appended <= session.sent_to_ms:
            entry.mark_repeated(session.sent_to_ms, self._clock())
        session.enqueue(entry)
        if session.is_reachable:
            self._ready.add(session, self.pump)

    def offered(self, held: Held) -> None:
        """All sessions were offered the message: nobody left to wait for, or it lives on."""
        if held.pending:
            self._shard.hold(held)
        else:
            self._finish_held(held)

    def wake(self, session: Session) -> None:
        """There may be something to send by the next flush."""
        self._ready.add(session, self.pump)

    def flush(self) -> None:
        """Sends what was offered since the last flush, by any shard."""
        self._ready.flush()

    def writable(self, session: Session) -> None:
        """The connection takes deliveries again."""
        self.pump(session)
        self.flush()

    def pump(self, session: Session) -> None:
        """Sends as much of the queue as the client's window and its connection take now."""
        if session.dropping and session.may_send:  # a crash could bring those again, behind what follows them (R8)
            self.overflow.settle_soon(session)
            return
        if session.is_group:
            self._shares.pump(session)
            return
        self._pump(session)
        if session.assignments is not None:
            self._shares.pumped(session)

    def _pump(self, session: Session) -> None:
        while session.link is not None and session.link.writable and not session.sending:
            if not session.queue:
                self.load(session)
                if not session.has_waiting:
                    return
            entries = self._unexpired(session, session.take(_CHUNK))
            if not entries:
                if session.has_waiting and session.is_window_full:
                    return
                continue
            if session.persistent and any(e.qos == 2 and not e.dup for e in entries):
                session.begin_sending()
                self._writer.windows(session, lambda entries=entries: self._send_logged(session, entries))  # type: ignore[misc]
            else:
                self._send(session, entries)

    def resend(self, session: Session) -> None:
        """On a new connection: PUBLISH with DUP or PUBREL for what was in flight, then the queue."""
        link = session.link
        if link is None:
            return
        for record in session.restored.values():
            if record.released and record.packet_id:
                link.release(record.packet_id)
        for entry in session.resend():
            if entry.released:
                link.release(entry.packet_id)
            else:
                link.deliver(entry.held.message, entry)
        self.pump(session)

    def drop_qos0(self, session: Session) -> None:
        """The connection is gone: what waited for it at QoS 0 is not delivered."""
        for entry in session.remove_qos0():
            self.finish(entry, "ended")

    def acknowledged(self, session: Session, packet_id: int) -> None:
        """PUBACK: the client has a QoS 1 message."""
        entry = session.in_flight.get(packet_id)
        if entry is None or entry.qos != 1:
            return
        session.close_exchange(packet_id)
        self.finish(entry, "delivered")
        self._has_room(session)

    def received(self, session: Session, packet_id: int, reason: int) -> None:
        """PUBREC: the client owns a QoS 2 message, or refuses it; PUBREL only once that is durable."""
        link = session.link
        entry = session.in_flight.get(packet_id)
        if entry is None or entry.qos != 2:
            if link is not None:
                link.release(packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            return
        first = not entry.released
        entry.released = True
        if not first:
            if link is not None and packet_id in session.in_flight:
                link.release(packet_id)
            return

        def durable() -> None:
            self.finish(entry, "delivered")
            if session.in_flight.get(packet_id) is not entry:
                return
            if reason >= ReasonCode.UNSPECIFIED_ERROR:
                self._complete(session, entry)
                self.flush()
            elif link is not None:
                link.release(packet_id)

        if session.persistent:
            self._writer.windows(session, durable)
        else:
            durable()

    def completed(self, session: Session, packet_id: int) -> None:
        """PUBCOMP: a QoS 2 exchange is over and its packet id free."""
        entry = session.in_flight.get(packet_id)
        if entry is None:
            session.completed_before(packet_id)
        elif entry.qos == 2 and entry.released:
            self._complete(session, entry)

    def undeliverable(self, session: Session, entry: Entry) -> None:
        """An entry that was sent but is too large for its client."""
        if session.in_flight.get(entry.packet_id) is entry:
            session.close_exchange(entry.packet_id)
        self.finish(entry, "dropped")
        self.pump(session)

    def finish(self, entry: Entry, outcome: Outcome) -> None:
        """One recipient is finished with a message."""
        if entry.finished:
            return
        held = entry.held
        entry.finished = True
        if entry.assigned is not None:
            self._shares.finished(entry, outcome)
            return
        delivery = self._delivery(entry, outcome)
        if held.spooled:
            if entry.row is not None:
                self._spool.delete_row(entry.row)
            self._reporter.outcome(held.message, held.shard, held.instructions, [delivery])
            return
        held.deliveries.append(delivery)
        held.pending -= 1
        if not held.pending:
            self._finish_held(held)
        elif held.position >= 0:
            held.finished.append(entry.client)

    def end(self, session: Session) -> None:
        """The session is over: everything it still had to get ends, in memory here and in the spool behind."""
        self.overflow.end(session)
        for entry in session.clear():
            self.finish(entry, "ended")
        self.backlog.end(session)

    def loaded(self, session: Session) -> None:
        """The session's queue has got more from the spool."""
        self.overflow.trim(session)
        self.pump(session)

    def _offer_qos0(self, session: Session, held: Held, entry: Entry) -> None:
        link = session.link
        if not session.is_reachable:
            return
        if link is not None and link.writable and not session.queue and not session.sending and not session.backlog:
            entry.finished = True
            if self.is_expired(entry):
                self._note(entry, "expired")
                return
            self._note(entry, "sent" if link.deliver(held.message, entry) else "dropped")
        elif not self.overflow.has_room(session, entry):
            self._drop(entry)
        else:
            held.pending += 1
            held.entries.append(entry)
            session.enqueue(entry)
            self._ready.add(session, self.pump)

    def drop(self, entry: Entry) -> None:
        """An entry has left a full queue."""
        if not entry.finished:
            self._counts["dropped_queue_full"] += 1
            self.finish(entry, "dropped")

    def _drop(self, entry: Entry) -> None:
        self._counts["dropped_queue_full"] += 1
        self._note(entry, "dropped")

    def _note(self, entry: Entry, outcome: Outcome) -> None:
        """An outcome without waiting."""
        entry.held.deliveries.append(self._delivery(entry, outcome))

    def _delivery(self, entry: Entry, outcome: Outcome) -> Delivery:
        self._counts[outcome] += 1
        client, qos = entry.recipient or (entry.client.removeprefix(GROUP_MARK), entry.qos)
        return Delivery(client=client, outcome=outcome, qos=qos, at_us=int(self._clock() * 1e6))

    def _unexpired(self, session: Session, entries: list[Entry]) -> list[Entry]:
        if all(entry.held.message.expires is None for entry in entries):
            return entries
        kept = []
        for entry in entries:
            if self.is_expired(entry) and not entry.dup:
                session.close_exchange(entry.packet_id)
                self.finish(entry, "expired")
            else:
                kept.append(entry)
        return kept

    def is_expired(self, entry: Entry) -> bool:
        """Whether the message's time is over."""
        return entry.is_expired(self._clock())

    def _send(self, session: Session, entries: list[Entry]) -> None:
        link = session.link
        if link is None:
            kept = [entry for entry in entries if entry.qos and not (entry.assigned and entry.may_return)]
            session.requeue(kept)
            for entry in entries:
                if entry not in kept:
                    session.close_exchange(entry.packet_id)
                    self.finish(entry, "ended")
            return
        for entry in entries:
            if entry.finished:  # it went back to its group meanwhile
                continue
            taken = link.deliver(entry.held.message, entry)
            entry.sent = True
            if not entry.qos:
                self.finish(entry, "sent" if taken else "dropped")

    def _send_logged(self, session: Session, entries: list[Entry]) -> None:
        session.end_sending()
        self._send(session, entries)
        self.pump(session)

    def _complete(self, session: Session, entry: Entry) -> None:
        session.close_exchange(entry.packet_id)
        if session.persistent or entry.assigned:
            session.settle(entry)
        self._has_room(session)

    def _has_room(self, session: Session) -> None:
        """The client has answered: it may take more."""
        if session.queue or session.backlog or session.assignments is not None:
            self._ready.add(session, self.pump)

    def _finish_held(self, held: Held) -> None:
        self._shard.release(held)
        held.entries.clear()  # breaks the cycle with its entries
        if held.instructions:
            self._reporter.relinquish(held)
        elif held.deliveries:
            self._reporter.outcome(held.message, held.shard, [], held.deliveries)
