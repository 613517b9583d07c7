"""Delivering: messages into sessions' queues, queues into links, and what becomes of each recipient's share."""

from collections.abc import Callable
from typing import Protocol

from gateway.shard.backlog import Backlog
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import GROUP_MARK, Delivery, Outcome, PendingMessage
from gateway.shard.node import Node
from gateway.shard.operations import Tasks
from gateway.shard.overflow import Overflow
from gateway.shard.session import Session
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from mqtt.codes import ReasonCode
from schemas.events import RecipientOutcome

_CHUNK = 64


class Shares(Protocol):
    """What is apart for share groups and their members."""

    def pump(self, session: Session) -> None:
        """Gives what a group has to its members."""
        ...

    def pumped(self, session: Session) -> None:
        """A session was sent what its client takes now."""
        ...

    def finished(self, delivery: Delivery, outcome: Outcome) -> None:
        """A session is finished with what a group has assigned to it."""
        ...


class Deliverer:
    """Moves deliveries through the sessions of a shard: queued → sent → finished; a message whose last recipient is
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

    def offer(self, session: Session, pending: PendingMessage, delivery: Delivery) -> None:
        """Gives a session its share of a message. QoS 0 goes to connected clients only."""
        if delivery.qos == 0:
            self._offer_qos0(session, pending, delivery)
            return
        if session.settled_before is not None and pending.message.partition >= 0 and not session.restore(delivery):
            self._note(delivery, session.earlier_outcome(delivery))
            pending.finished.append(delivery.client)  # the message may outlast what the session remembers
            return
        if session.in_hand is not None and session.take_in_hand(delivery):
            pending.unfinished += 1
            pending.deliveries.append(delivery)
            return
        has_capacity = self.overflow.has_capacity(session, delivery)
        if not has_capacity and not (session.persistent and delivery.is_brought_again):
            self._drop(delivery)
            return
        pending.unfinished += 1
        pending.deliveries.append(delivery)
        if not has_capacity:
            self.overflow.drop(session, delivery)
            return
        if pending.message.appended <= session.sent_to_ms:
            delivery.mark_repeated(session.sent_to_ms, self._clock())
        session.enqueue(delivery)
        if session.is_reachable:
            self._ready.add(session, self.pump)

    def offered(self, pending: PendingMessage) -> None:
        """All sessions were offered the message: nobody left to wait for, or it lives on."""
        if pending.unfinished:
            self._shard.hold(pending)
        else:
            self._finish_held(pending)

    def wake(self, session: Session) -> None:
        """There may be something to send by the next flush."""
        self._ready.add(session, self.pump)

    def flush(self) -> None:
        """Sends what was offered since the last flush, by any shard."""
        self._ready.flush()

    def writable(self, session: Session) -> None:
        """The connection takes deliveries again."""
        self.wake(session)
        self.flush()

    def pump(self, session: Session) -> None:
        """Sends as much of the queue as the client's window and its connection take now."""
        if self._writer.is_lost:
            return
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
            deliveries = self._unexpired(session, session.take(_CHUNK))
            if not deliveries:
                if session.has_waiting and session.is_window_full:
                    return
                continue
            if session.persistent and any(e.qos == 2 and not e.dup for e in deliveries):
                session.begin_sending()
                self._writer.windows(session, lambda deliveries=deliveries: self._send_logged(session, deliveries))  # type: ignore[misc]
            else:
                self._send(session, deliveries)

    def resend(self, session: Session) -> None:
        """On a new connection: PUBLISH with DUP or PUBREL for what was in flight, then the queue."""
        link = session.link
        if link is None:
            return
        for record in session.restored.values():
            if record.released and record.packet_id:
                link.release(record.packet_id)
        for delivery in session.resend():
            if delivery.released:
                link.release(delivery.packet_id)
            else:
                link.deliver(delivery.pending.message, delivery)
        self.writable(session)

    def forget_restored(self, session: Session) -> None:
        """All that was there before the restart has come again. What was sent then at QoS 2, and has not come, ends
        with PUBREL, once that is durable [MQTT-3.10.4-3]."""
        packet_ids = session.forget_restored()
        if not packet_ids:
            return

        def durable() -> None:
            link = session.link
            if link is None:
                return  # it is due on the next connection
            for record in session.restored.values():
                if record.packet_id in packet_ids:
                    link.release(record.packet_id)
            self.flush()

        self._writer.windows(session, durable)

    def drop_qos0(self, session: Session) -> None:
        """The connection is gone: what waited for it at QoS 0 is not delivered."""
        for delivery in session.remove_qos0():
            self.finish(delivery, "ended")

    def acknowledged(self, session: Session, packet_id: int) -> None:
        """PUBACK: the client has a QoS 1 message."""
        delivery = session.in_flight.get(packet_id)
        if delivery is None or delivery.qos != 1:
            return
        session.close_exchange(packet_id)
        self.finish(delivery, "delivered")
        self._answered(session)

    def received(self, session: Session, packet_id: int, reason: int) -> None:
        """PUBREC: the client owns a QoS 2 message, or refuses it; PUBREL only once that is durable."""
        link = session.link
        delivery = session.in_flight.get(packet_id)
        if delivery is None or delivery.qos != 2:
            if link is not None:
                link.release(packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            return
        is_first, delivery.released = not delivery.released, True

        def again() -> None:
            if link is not None and session.in_flight.get(packet_id) is delivery:
                link.release(packet_id)

        def durable() -> None:
            self.finish(delivery, "delivered")
            if session.in_flight.get(packet_id) is not delivery:
                return
            if reason >= ReasonCode.UNSPECIFIED_ERROR:
                self._complete(session, delivery)
                self.flush()
            elif link is not None:
                link.release(packet_id)

        action = durable if is_first else again
        if session.persistent and (is_first or session.is_logging):
            self._writer.windows(session, action)
        else:
            action()

    def completed(self, session: Session, packet_id: int) -> None:
        """PUBCOMP: a QoS 2 exchange is over and its packet id free."""
        delivery = session.in_flight.get(packet_id)
        if delivery is None:
            session.completed_before(packet_id)
            self._answered(session)  # it may have taken room in the window
        elif delivery.qos == 2 and delivery.released:
            self._complete(session, delivery)

    def undeliverable(self, session: Session, delivery: Delivery) -> None:
        """A delivery that was sent but is too large for its client."""
        if session.in_flight.get(delivery.packet_id) is delivery:
            session.close_exchange(delivery.packet_id)
        self.finish(delivery, "dropped")
        self.writable(session)

    def finish(self, delivery: Delivery, outcome: Outcome) -> None:
        """One recipient is finished with a message."""
        if delivery.finished:
            return
        pending = delivery.pending
        delivery.finished = True
        if delivery.assigned is not None:
            self._shares.finished(delivery, outcome)
            return
        recipient = self._outcome_of(delivery, outcome)
        if pending.spooled:
            if delivery.row is not None:
                self._spool.delete_row(delivery.row)
            self._reporter.outcome(pending.message, pending.shard, pending.instructions, [recipient])
            return
        pending.outcomes.append(recipient)
        pending.unfinished -= 1
        if not pending.unfinished:
            self._finish_held(pending)
        elif pending.position >= 0:
            pending.finished.append(delivery.client)

    def end(self, session: Session) -> None:
        """The session is over: everything it still had to get ends, in memory here and in the spool behind."""
        self.overflow.end(session)
        for delivery in session.clear():
            self.finish(delivery, "ended")
        self.backlog.end(session)

    def loaded(self, session: Session) -> None:
        """The session's queue has got more from the spool."""
        self.overflow.trim(session)
        if session.in_hand is not None:  # more of it may wait there
            self.load(session)
        self.writable(session)

    def _offer_qos0(self, session: Session, pending: PendingMessage, delivery: Delivery) -> None:
        link = session.link
        if not session.is_connected:
            return
        if link is not None and link.writable and not session.queue and not session.sending and not session.backlog:
            delivery.finished = True
            if self.is_expired(delivery):
                self._note(delivery, "expired")
                return
            self._note(delivery, "sent" if link.deliver(pending.message, delivery) else "dropped")
        elif not self.overflow.has_capacity(session, delivery):
            self._drop(delivery)
        else:
            pending.unfinished += 1
            pending.deliveries.append(delivery)
            session.enqueue(delivery)
            self._ready.add(session, self.pump)

    def drop(self, delivery: Delivery) -> None:
        """A delivery has left a full queue."""
        if not delivery.finished:
            self._counts["dropped_queue_full"] += 1
            self.finish(delivery, "dropped")

    def _drop(self, delivery: Delivery) -> None:
        self._counts["dropped_queue_full"] += 1
        self._note(delivery, "dropped")

    def _note(self, delivery: Delivery, outcome: Outcome) -> None:
        """An outcome without waiting."""
        delivery.pending.outcomes.append(self._outcome_of(delivery, outcome))

    def _outcome_of(self, delivery: Delivery, outcome: Outcome) -> RecipientOutcome:
        self._counts[outcome] += 1
        client, qos = delivery.recipient or (delivery.client.removeprefix(GROUP_MARK), delivery.qos)
        return RecipientOutcome(client=client, outcome=outcome, qos=qos, at_us=int(self._clock() * 1e6))

    def _unexpired(self, session: Session, deliveries: list[Delivery]) -> list[Delivery]:
        if all(delivery.pending.message.expires is None for delivery in deliveries):
            return deliveries
        kept = []
        for delivery in deliveries:
            if self.is_expired(delivery) and not delivery.dup:
                session.close_exchange(delivery.packet_id)
                self.finish(delivery, "expired")
            else:
                kept.append(delivery)
        return kept

    def is_expired(self, delivery: Delivery) -> bool:
        """Whether the message's time is over."""
        return delivery.is_expired(self._clock())

    def _send(self, session: Session, deliveries: list[Delivery]) -> None:
        link = session.link
        if link is None:
            kept = [
                delivery for delivery in deliveries if delivery.qos and not (delivery.assigned and delivery.may_return)
            ]
            session.requeue(kept)
            for delivery in deliveries:
                if delivery not in kept:
                    session.close_exchange(delivery.packet_id)
                    self.finish(delivery, "ended")
            return
        for delivery in deliveries:
            if delivery.finished:  # it went back to its group meanwhile
                continue
            taken = link.deliver(delivery.pending.message, delivery)
            delivery.sent = True
            if not delivery.qos:
                self.finish(delivery, "sent" if taken else "dropped")

    def _send_logged(self, session: Session, deliveries: list[Delivery]) -> None:
        session.end_sending()
        self._send(session, deliveries)
        self.writable(session)

    def _complete(self, session: Session, delivery: Delivery) -> None:
        session.close_exchange(delivery.packet_id)
        if session.persistent or delivery.assigned:
            session.settle(delivery)
        self._answered(session)

    def _answered(self, session: Session) -> None:
        """The client has answered: it may take more."""
        if session.queue or session.backlog or session.assignments is not None:
            self._ready.add(session, self.pump)

    def _finish_held(self, pending: PendingMessage) -> None:
        self._shard.release(pending)
        pending.deliveries.clear()  # breaks the cycle with its deliveries
        if pending.instructions:
            self._reporter.relinquish(pending)
        elif pending.outcomes:
            self._reporter.outcome(pending.message, pending.shard, [], pending.outcomes)
