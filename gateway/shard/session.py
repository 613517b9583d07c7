"""The durable state of a client across connections: subscriptions, queue, and both windows (MQTT 5.0, 4.1; G8, G9).

Pure: no clock, no I/O. The home performs what the methods return.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gateway.shard.cursor import SettledCursor
from gateway.shard.in_hand import InHand
from gateway.shard.inbound_exchanges import InboundExchanges
from gateway.shard.messages import Delivery, Message, Outcome, is_assigned
from gateway.shard.session_assignments import SessionAssignments
from gateway.shard.session_queue import SessionQueue
from gateway.shard.subscription import SessionSubscription
from mqtt.limits import PACKET_ID_MAX
from schemas.session_log import OutgoingRecord, WindowRecord


@dataclass(slots=True, eq=False)
class Session(SessionQueue):
    """One client's session: its life, its queue, and both windows.

    `in_flight` are deliveries that were taken for sending and are not finished, by packet id; `sending` while some of
    them wait for the session log first. `inbound` is what the client has under way.

    `settled` is up to where QoS 2 exchanges are over. What it covers and is not finished is in flight or in `put_back`.
    After a restart `restored` are the exchanges that were open, `settled_before` what was settled, and `dropped_before`
    what was dropped, until all has come again that can. What was appended by `sent_to_ms` may have been sent by an
    earlier life of the home, which keeps no record of that at QoS 1.

    `assignments` are what share groups have assigned to it, None if it has never been a member of one.

    `retained_sent` are ids of messages that were sent on SUBSCRIBE and whose live copies may still come, and until
    when; `retained_bundles` those that came in bundles (:class:`schemas.session_log.Subscribed`). `live_meanwhile` are,
    while it is `subscribing`, the newest live messages with RETAIN by topic: id and append time.

    `in_hand` is what the client has been sent on the present connection, which began at another gateway, and is still
    to come again here; `reserved` are packet ids of exchanges that it has yet to complete from then.

    Only this file sets the fields, but for those of subscriptions, which :mod:`gateway.shard.subscribing` has.
    """

    is_group: ClassVar[bool] = False

    subscriptions: dict[str, SessionSubscription] = field(default_factory=dict)
    in_flight: dict[int, Delivery] = field(default_factory=dict)
    restored: dict[tuple[int, int], OutgoingRecord] = field(default_factory=dict)
    settled: SettledCursor = field(default_factory=SettledCursor)
    settled_before: SettledCursor | None = None
    dropped_before: set[tuple[int, int]] = field(default_factory=set)
    sent_to_ms: int = -1
    inbound: InboundExchanges = field(default_factory=InboundExchanges)
    assignments: SessionAssignments | None = None
    retained_sent: dict[str, float] = field(default_factory=dict)
    retained_bundles: dict[str, int] = field(default_factory=dict)
    subscribing: int = 0
    live_meanwhile: dict[str, tuple[str, int]] = field(default_factory=dict)
    sending: bool = False
    in_hand: InHand | None = None
    reserved: set[int] = field(default_factory=set)
    last_packet_id: int = 0

    @property
    def is_connected(self) -> bool:
        """Whether a client is there, now."""
        return self.link is not None

    @property
    def is_reachable(self) -> bool:
        """Whether there is somebody to deliver to."""
        return self.is_connected

    @property
    def unacknowledged(self) -> int:
        """Messages at QoS 1 and 2 that the client has in hand, or will have at once."""
        return len(self.in_flight)

    def remember_bundle(self, message_id: str, until_ms: int, most: int) -> None:
        """A retained message, which is sent now, came in a bundle of which other copies may come until then."""
        known = self.retained_bundles
        if len(known) >= most:
            del known[next(iter(known))]
        known[message_id] = until_ms

    def note_live(self, message: Message, kept: Message | None) -> None:
        """A message with RETAIN comes live; `kept` is what is retained on its topic. If that was sent already and is no
        older, it must come once more: the newest value is the last that a client gets."""
        if self.subscribing and message.appended >= self.live_meanwhile.get(message.topic, ("", 0))[1]:
            self.live_meanwhile[message.topic] = message.id, message.appended
        if self.retained_sent and kept is not None and kept.appended >= message.appended:
            self.retained_sent.pop(kept.id, None)

    def is_outdated(self, kept: Message) -> bool:
        """Whether a retained message, or one of its topic that is no older, has come live while the session
        subscribes."""
        live = self.live_meanwhile.get(kept.topic)
        return live is not None and (kept.id == live[0] or kept.appended <= live[1])

    def forget_bundles(self, now_ms: float) -> None:
        """Those of which no other copies come any more."""
        if self.retained_bundles:
            self.retained_bundles = {i: until for i, until in self.retained_bundles.items() if until > now_ms}

    def has_in_hand(self, delivery: Delivery) -> bool:
        """Whether what was delivered to the client as `delivery` is still open."""
        return self.in_flight.get(delivery.packet_id) is delivery

    @property
    def is_window_full(self) -> bool:
        """Whether the client takes no more at QoS 1 and 2 for now."""
        return len(self.in_flight) + len(self.reserved) >= self.receive_maximum

    @property
    def may_send(self) -> bool:
        """Whether the next of the queue can be sent now."""
        if self.link is None or not self.link.writable:
            return False
        return not self.is_window_full or (bool(self.queue) and not self.queue[0].qos)

    @property
    def has_waiting(self) -> bool:
        """Whether anything waits in memory to be sent."""
        return bool(self.queue) or (self.assignments is not None and bool(self.assignments.waiting))

    @property
    def is_recovering(self) -> bool:
        """Whether something of an earlier life of the home is still remembered."""
        return self.settled_before is not None or bool(self.restored)

    @property
    def is_unsettled(self) -> bool:
        """Whether a checkpoint has something to write of it, or to forget."""
        return self.inbound.is_dirty or self.is_recovering or bool(self.dropped or self.dropping)

    def begin_sending(self) -> None:
        """Deliveries that were taken wait for the session log: nothing may overtake them."""
        self.sending = True

    def end_sending(self) -> None:
        """The session log has them."""
        self.sending = False

    def take(self, most: int) -> list[Delivery]:
        """Up to `most` deliveries that may be sent now, oldest first, with packet ids; in flight afterwards (QoS > 0).
        What share groups have assigned takes turns with the queue."""
        assignments, taken = self.assignments, list[Delivery]()
        if assignments is None or not assignments.waiting:
            self._take(self.queue, most, taken)
        elif not self.queue or not assignments.own_is_next:
            has_taken = self._take(assignments.waiting, most, taken)
            self._take(self.queue, most, taken)
            assignments.had_turn(has_taken, own_is_next=has_taken)
        else:
            own_has_taken = self._take(self.queue, most, taken)
            assignments.had_turn(self._take(assignments.waiting, most, taken), own_is_next=not own_has_taken)
        return taken

    def _take(self, waiting: deque[Delivery], most: int, taken: list[Delivery]) -> bool:
        """Adds deliveries to those taken; whether there was room for any."""
        before, in_flight, is_own = len(taken), self.in_flight, waiting is self.queue
        window = self.receive_maximum - len(self.reserved)
        while waiting and len(taken) < most:
            delivery = waiting[0]
            if delivery.qos:
                if len(in_flight) >= window:
                    break
                if not delivery.packet_id:
                    delivery.packet_id = self._free_packet_id()
                self.kept_packet_ids.discard(delivery.packet_id)
                if self.put_back:
                    self.put_back.discard(delivery.place)
                in_flight[delivery.packet_id] = delivery
            waiting.popleft()
            if is_own:
                self.queued_bytes -= delivery.pending.message.size
            taken.append(delivery)
        return len(taken) > before

    def assigning(self) -> SessionAssignments:
        """What share groups have assigned to it, from now on if not before."""
        assignments = self.assignments = self.assignments or SessionAssignments()
        return assignments

    def accept_assignment(self, delivery: Delivery, packet_id: int) -> None:
        """Takes what a share group has assigned to the session; it waits to be sent. It was sent before, with
        `packet_id`, unless that is 0."""
        assignments = self.assigning()
        assignments.take_up(delivery)
        if packet_id:
            delivery.dup = True
            if packet_id not in self.in_flight and packet_id not in self.kept_packet_ids:
                delivery.packet_id = packet_id
        if delivery.packet_id:
            self.kept_packet_ids.add(delivery.packet_id)
        assignments.add(delivery)

    def take_back_assigned(self, *, kept: int = 0, group: str | None = None) -> list[Delivery]:
        """Takes assignments that wait, and may go to another member, out of the session: those of `group` only, if it
        is given, and not the first `kept`."""
        returned = [] if self.assignments is None else self.assignments.take_back(kept, group)
        self.kept_packet_ids.difference_update([delivery.packet_id for delivery in returned])
        return returned

    def take_back_unacknowledged(self) -> list[Delivery]:
        """Takes out of the session what groups that it is a member of have assigned at QoS 1, and was sent."""
        if (assignments := self.assignments) is None:
            return []
        groups = assignments.groups
        sent = [e for e in self.in_flight.values() if e.qos == 1 and e.assigned and e.assigned.group in groups]
        for delivery in sent:
            del self.in_flight[delivery.packet_id]
            assignments.over(delivery)
        return sent

    def recover(self, record: WindowRecord) -> None:
        """Takes up the windows that an earlier life of the home has written."""
        self.restored = {o.place: o for o in record.outgoing if not is_assigned(o.place)}
        self.recover_assignments([o for o in record.outgoing if is_assigned(o.place)])
        self.settled, self.settled_before = SettledCursor(record.settled), SettledCursor(record.settled)
        self.put_back = set(record.open)
        self.dropped_before = set(record.dropped)
        self.inbound.recover(record.received, record.received_until)

    def may_have_been_sent(self, to_ms: int) -> None:
        """An earlier life of the home may have sent what was appended by then (ms since the epoch)."""
        self.sent_to_ms = to_ms

    def recover_assignments(self, outgoing: list[OutgoingRecord]) -> None:
        """Takes up what an earlier life of the home has written of QoS 2 assignments."""
        if outgoing:
            self.assigning().recover(outgoing)

    def restore(self, delivery: Delivery) -> bool:
        """Gives a delivery that a recovery brings again its place from before; False if it is finished (see
        `earlier_outcome`)."""
        if self.settled_before is None:
            return True
        if delivery.place in self.dropped_before:
            return False
        record = self.restored.get(delivery.place)
        if record is None:
            return delivery.place in self.put_back or not self.settled_before.covers(delivery)
        if record.released:
            return False
        delivery.packet_id, delivery.dup = record.packet_id, True
        self.kept_packet_ids.add(record.packet_id)
        return True

    def earlier_outcome(self, delivery: Delivery) -> Outcome:
        """What had become of a delivery that a recovery brings again for nothing."""
        return "dropped" if delivery.place in self.dropped_before else "delivered"

    def may_be_known(self, place: tuple[int, int], row: int) -> bool:
        """Whether the client may have had a message in the spool before a restart, which is not recovered yet."""
        return place in self.restored or (self.settled_before is not None and self.settled_before.covers_row(row))

    def resend(self) -> list[Delivery]:
        """What was sent on an earlier connection and is not finished, in order: PUBREL is due for those `released`,
        else PUBLISH with DUP. What the client's window no longer takes goes back to the head of the queue."""
        again = [delivery for delivery in self.in_flight.values() if delivery.sent]
        for delivery in again:
            delivery.dup = True
        fitting = [delivery for delivery in again if delivery.released]
        waiting = [delivery for delivery in again if not delivery.released]
        unsent = len(self.in_flight) - len(again)
        room = max(0, self.receive_maximum - len(fitting) - unsent)
        self.requeue(waiting[room:])
        return fitting + waiting[:room]

    def close_exchange(self, packet_id: int) -> None:
        """What was sent as `packet_id` is over, or never was sent."""
        self.in_flight.pop(packet_id, None)

    def completed_before(self, packet_id: int) -> None:
        """PUBCOMP for an exchange that was released before a restart."""
        self.reserved.discard(packet_id)
        if self.assignments is not None:
            self.assignments.completed(packet_id)
        for place, record in self.restored.items():
            if record.packet_id == packet_id and record.released:
                self.restored[place] = record.without_packet_id()
                break

    def clear(self) -> list[Delivery]:
        """The session is over: takes out all that it still had to get, but for the backlog."""
        assigned = () if self.assignments is None else self.assignments.waiting
        in_flight = [delivery for delivery in self.in_flight.values() if not delivery.released]
        deliveries = [*self.queue, *self.tail, *assigned, *in_flight]
        for waiting in (self.subscriptions, self.queue, self.tail, self.in_flight):
            waiting.clear()
        return deliveries

    def requeue(self, deliveries: list[Delivery]) -> None:
        """Puts deliveries that were taken back at the head of the queue, in order; those sent keep their packet id."""
        for delivery in reversed(deliveries):
            self.in_flight.pop(delivery.packet_id, None)
            if delivery.dup:
                self.kept_packet_ids.add(delivery.packet_id)
            else:
                delivery.packet_id = 0
            if delivery.assigned is not None and self.assignments is not None:
                self.assignments.waiting.appendleft(delivery)
                continue
            self.put_back.add(delivery.place)
            self.queue.appendleft(delivery)
            self.queued_bytes += delivery.pending.message.size

    def take_as_sent(self, delivery: Delivery) -> None:
        """A delivery that was sent on an earlier connection, and has left the queue, is in flight once more without
        being sent again: its packet id is free only when the client has completed the exchange."""
        self.kept_packet_ids.discard(delivery.packet_id)
        delivery.sent = True
        self.in_flight[delivery.packet_id] = delivery

    def go_on(self, in_hand: InHand, reserved: Iterable[int], last_packet_id: int, sent_to_ms: int) -> None:
        """Its connection began at another gateway, and goes on here."""
        self.in_hand = in_hand if len(in_hand) else None
        self.reserved, self.last_packet_id, self.sent_to_ms = set(reserved), last_packet_id, sent_to_ms

    def take_in_hand(self, delivery: Delivery) -> bool:
        """Takes a delivery that comes again, and that the client was sent on its present connection, as sent; False if
        it was not."""
        if self.in_hand is None or not (packet_id := self.in_hand.take(delivery)):
            return False
        if not len(self.in_hand):
            self.in_hand = None
        delivery.packet_id = packet_id
        self.put_back.discard(delivery.place)
        self.take_as_sent(delivery)
        return True

    def disconnected(self, now_ms: int, expiry_s: int | None, *, keeps_will: bool, was_accepted: bool = True) -> None:
        """The connection is gone; `expiry_s` is what DISCONNECT asked for, if it did."""
        SessionQueue.disconnected(self, now_ms, expiry_s, keeps_will=keeps_will, was_accepted=was_accepted)
        if self.in_hand is not None:
            self.sent_to_ms = self.in_hand.sent_to_ms
        self.in_hand = None
        self.reserved.clear()

    def rows_in_memory(self) -> set[int]:
        waiting = (*self.queue, *self.tail, *self.in_flight.values(), *self.dropping.values())
        return {delivery.row for delivery in waiting if delivery.row is not None}

    def settle(self, delivery: Delivery) -> None:
        """A QoS 2 exchange is over: whatever brings the message again, it must not be sent again."""
        if delivery.assigned is not None and self.assignments is not None:
            self.assignments.settle(delivery)
            return
        self.restored.pop(delivery.place, None)
        self.settled.note(delivery)

    def forget_restored(self) -> list[int]:
        """All that was there before the restart has been read again: what has not come will not come. Returns the
        packet ids of exchanges that had begun, and count as released now: their subscription has ended, or the time of
        their message is over. The client may have it, and needs PUBREL to give the packet id free."""
        here = {delivery.place for delivery in (*self.queue, *self.tail, *self.in_flight.values())}
        open_ones = {place: record for place, record in self.restored.items() if record.packet_id}
        begun = {place: r.as_released() for place, r in open_ones.items() if not r.released and place not in here}
        self.restored = open_ones | begun
        self.put_back &= here
        self.settled_before = None
        self.dropped_before = set()
        return [record.packet_id for record in begun.values()]

    def _free_packet_id(self) -> int:
        reserved: Sequence[int] = ()
        if self.restored or self.assignments is not None:
            reserved = [record.packet_id for record in self.restored.values()]
            reserved += [] if self.assignments is None else self.assignments.packet_ids()
        packet_id = self.last_packet_id
        for _ in range(PACKET_ID_MAX):
            packet_id = packet_id % PACKET_ID_MAX + 1
            if packet_id not in self.in_flight and packet_id not in reserved and packet_id not in self.kept_packet_ids:
                self.last_packet_id = packet_id
                return packet_id
        raise AssertionError("more messages in flight than packet ids")  # receive_maximum is at most as many


def client_of(spool_key: str) -> str:
    """Whose session a name in the spool is of."""
    return spool_key.rpartition("\0")[0]
