"""Share groups (MQTT 5.0, 4.8.2; R6): subscriptions of several sessions that get each message once among them.

A group is a session without a connection: it has a queue, a place in the spool and a record in the session log, in the
shard of its own name. What it has to deliver it assigns to a member, as far as that has capacity, and keeps it until
the member's shard says what became of it. Pure: no clock, no I/O.
"""

import itertools
from collections.abc import Iterable

from gateway.shard.conversations import Conversations
from gateway.shard.cursor import SettledCursor
from gateway.shard.messages import GROUP_MARK, Delivery, Outcome
from gateway.shard.session import Session
from gateway.shard.share_member import Assigned, Member
from gateway.shard.subscription import SessionSubscription
from mqtt.topics import split_shared
from schemas.envelope import Incarnation
from schemas.session_log import AssignedRecord, GroupRecord

RECORD_BYTES = 512 * 1024
"""A group assigns no more at QoS 2 once its record in the session log is about as large."""

Place = tuple[int, int]


def filter_of(name: str) -> str:
    """The topic filter of the group `$share/<share name>/<filter>`. Raises ValueError."""
    shared = split_shared(name)
    if shared is None:
        raise ValueError(f"{name!r} is not a shared subscription")
    return shared[1]


class ShareGroup(Session):
    """The sessions that share the subscription `name`, `$share/<share name>/<filter>`.

    `reachable` are members that are connected, `ready` those of them that may have capacity, in turn. `assigned` are
    the deliveries that members have, by number; `assigned_before` what an earlier life of the home has assigned at QoS
    2 and has not come again, by place. `closing` are client and number of those that are over but may stand in the
    record in the session log. `had` says, of deliveries that came back, which session was sent them last, and with
    which packet id. `conversations` are None until it has had one. A group without members ends when its QoS 2
    assignments are over."""

    is_group = True

    def __init__(self, name: str, shard: int, since: int, born_us: int, most_assigned: int) -> None:
        super().__init__(GROUP_MARK + name, shard, since, born_us)
        self.name = name
        self.members: dict[str, Member] = {}
        self.reachable: dict[str, Member] = {}
        self.ready: dict[str, Member] = {}
        self.assigned: dict[int, Assigned] = {}
        self.assigned_before: dict[Place, AssignedRecord] = {}
        self.closing: list[tuple[str, int]] = []
        self.had: dict[Place, tuple[Incarnation, int]] = {}
        self.conversations: Conversations | None = None
        self._most_assigned = most_assigned
        self._record_bytes = 0
        self._in_hand = 0

    @property
    def persistent(self) -> bool:
        """It is written to the session log, and direct deliveries to it are kept, as long as it has a member."""
        return True

    @property
    def is_connected(self) -> bool:
        return bool(self.reachable)

    @property
    def is_reachable(self) -> bool:
        """Also sessions that have had a message before are sent it again, connected or not."""
        return bool(self.reachable or self.assigned_before)

    @property
    def is_recovering(self) -> bool:
        return self.settled_before is not None or bool(self.assigned_before)

    @property
    def is_over(self) -> bool:
        """Whether nobody needs it any more."""
        return not (self.members or self.assigned or self.assigned_before)

    @property
    def subscription(self) -> SessionSubscription | None:
        """The one subscription of all members, as the shard matches it; its QoS is the highest of theirs. None once
        the last member has left."""
        return next(iter(self.subscriptions.values()), None)

    @property
    def highest_qos(self) -> int:
        return max(member.record.qos for member in self.members.values())

    @property
    def may_send(self) -> bool:
        return bool(self.ready) and (not self.queue or self.has_room_for(self.queue[0]))

    def has_room_for(self, delivery: Delivery) -> bool:
        """Whether its connected members together may have one more. The record names all that members have at QoS 2."""
        if delivery.qos == 2 and self._record_bytes >= RECORD_BYTES:
            return False
        return self._in_hand < self._most_assigned

    def begin_again(self, since: int, born_us: int | None) -> None:
        """It has members again; `born_us`: it is an earlier group than it was taken for."""
        self.since, self.born_us = since, self.born_us if born_us is None else born_us

    # -- members -------------------------------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """A new member, or new options of one; the same session keeps what it has in hand."""
        known = self.members.get(member.client)
        if known is not None:
            was_away = known.capacity is None
            self.reach(known, None)
            if known.session == member.session:
                member.outstanding = known.outstanding
                if was_away:
                    member.away_since = known.away_since
                member.is_logged = known.is_logged and known.options == member.options
        self.members[member.client] = member
        capacity, member.capacity = member.capacity, None
        self.reach(member, capacity)

    def reach(self, member: Member, capacity: int | None) -> None:
        """A member takes as many assignments at a time, or is away (None)."""
        if member.capacity is not None:
            self._in_hand -= member.outstanding
        member.capacity = capacity
        if capacity is None:
            self.reachable.pop(member.client, None)
            self.ready.pop(member.client, None)
            return
        self._in_hand += member.outstanding
        self.reachable[member.client] = member
        if member.has_capacity:
            self.ready.setdefault(member.client, member)

    def goes_away(self, member: Member, now: float) -> None:
        """A member is away from now on, seconds of the group's clock."""
        self.reach(member, None)
        member.away_since = now

    def leave(self, client: str, session: Incarnation) -> bool:
        """Whether it was a member."""
        member = self.member(client, session)
        if member is not None:
            self.reach(member, None)
            del self.members[client]
        return member is not None

    def member(self, client: str, session: Incarnation) -> Member | None:
        """A session, if it is a member."""
        member = self.members.get(client)
        return member if member is not None and member.session == session else None

    # -- assigning -----------------------------------------------------------------------------------------------------

    def choose(self) -> Member | None:
        """The next member with capacity, in turn; None if none has."""
        while self.ready:
            client, member = next(iter(self.ready.items()))
            del self.ready[client]
            if member.has_capacity:
                self.ready[client] = member
                return member
        return None

    def assign(self, delivery: Delivery, number: int, member: Member) -> Assigned:
        """Gives a delivery of the queue to a member that has capacity, by that member's own subscription."""
        message, record = delivery.pending.message, member.record
        assigned = Assigned(
            self,
            number,
            self.take_next(delivery),
            member.client,
            member.session,
            member.shard,
            qos=min(message.qos, record.qos),
            retain=message.retain and record.retain_as_published,
            subscription_ids=() if record.identifier is None else (record.identifier,),
        )
        if self.had:
            session, packet_id = self.had.pop(delivery.place, (None, 0))
            assigned.packet_id = packet_id if session == member.session else 0
        return self._note(assigned)

    def assign_again(self, delivery: Delivery, shard: int) -> Assigned:
        """Gives a delivery to the session that had it before a restart; `shard` is that of its client. What waits
        before it is not settled with it."""
        record = self.assigned_before.pop(delivery.place)
        earlier = itertools.takewhile(lambda waiting: waiting is not delivery, self.queue)
        self.put_back.update(waiting.place for waiting in earlier if waiting.qos)
        self.remove(delivery)
        member = self.member(record.client, record.session)
        of = None if member is None else member.record
        assigned = Assigned(
            self,
            record.number,
            delivery,
            record.client,
            record.session,
            shard,
            qos=2,
            retain=of is not None and of.retain_as_published and delivery.pending.message.retain,
            subscription_ids=() if of is None or of.identifier is None else (of.identifier,),
            is_logged=True,
        )
        return self._note(assigned)

    def _note(self, assigned: Assigned) -> Assigned:
        delivery = assigned.delivery
        delivery.recipient, delivery.sent = (assigned.client, assigned.qos), True
        self.assigned[assigned.number] = assigned
        self._count(assigned, 1)
        return assigned

    def _count(self, assigned: Assigned, sign: int) -> None:
        if assigned.qos == 2:
            self._record_bytes += sign * assigned.record_bytes
        member = self.member(assigned.client, assigned.session)
        if member is None:
            return
        member.outstanding += sign
        if member.capacity is not None:
            self._in_hand += sign
        if member.has_capacity:
            self.ready.setdefault(member.client, member)

    def sent(self, assigned: Assigned) -> None:
        """It is on its way to the member."""
        assigned.times_sent += 1

    def returned(self, assigned: Assigned, packet_id: int) -> None:
        """The member gives it back, and takes no more until it says otherwise; `packet_id` as in Assigned."""
        assigned.packet_id = packet_id
        if not packet_id:  # its client was sent nothing
            assigned.times_sent = 0
        member = self.member(assigned.client, assigned.session)
        if member is not None and member.capacity:
            self.reach(member, 0)

    def unknown(self, assigned: Assigned) -> None:
        """Nobody knows whether the member's session had it."""
        assigned.delivery.recipient = None

    def close(self, assigned: Assigned) -> None:
        """Its result is there."""
        if self.assigned.pop(assigned.number, None) is not None:
            self._count(assigned, -1)
            if self.conversations is not None:
                self.conversations.closed(assigned)
            if assigned.qos == 2:
                self.closing.append((assigned.client, assigned.number))

    def take_back(self, returned: Iterable[Assigned]) -> None:
        """Closed assignments that another member may get wait again, in the order in which their messages were
        offered."""
        waiting = [assigned for assigned in returned if not assigned.delivery.finished]
        if not waiting:
            return
        if self.conversations is not None:
            self.conversations.look_again()
        deliveries = [assigned.delivery for assigned in waiting]
        for assigned, delivery in zip(waiting, deliveries, strict=True):
            delivery.recipient, delivery.sent, delivery.dup = None, False, False
            if delivery.qos:
                self.put_back.add(delivery.place)
            if assigned.packet_id:
                self.had[delivery.place] = assigned.session, assigned.packet_id
            self.queued_bytes += delivery.pending.message.size
        if len(self.had) > 2 * len(self.put_back) + 100:  # some have left the queue in other ways
            self.had = {place: session for place, session in self.had.items() if place in self.put_back}
        last = max(_order(delivery) for delivery in deliveries)
        while self.queue and _order(self.queue[0]) < last:
            deliveries.append(self.queue.popleft())
        deliveries.sort(key=_order)
        self.queue.extendleft(reversed(deliveries))

    def take_next(self, delivery: Delivery) -> Delivery:
        """Takes a delivery out of the queue: the first, but for those that were passed over."""
        if self.queue[0] is not delivery:
            self.take_out(delivery)
            return delivery
        self.queue.popleft()
        self.queued_bytes -= delivery.pending.message.size
        if self.put_back:
            self.put_back.discard(delivery.place)
        return delivery

    def pass_over(self, delivery: Delivery) -> None:
        """It waits for one member, and those behind it go on. It is not settled with them."""
        if delivery.qos:
            self.put_back.add(delivery.place)

    def in_hand_unspooled(self, client: str) -> list[int]:
        """Numbers of the messages that a member has at QoS 2 and the spool does not hold."""
        in_hand = [a.delivery for a in self.assigned.values() if a.qos == 2 and a.client == client]
        return [delivery.pending.number for delivery in in_hand if delivery.row is None]

    # -- conversations -------------------------------------------------------------------------------------------------

    def begin_conversations(self, conversations: Conversations) -> None:
        """It gets its first message of one."""
        self.conversations = conversations

    def end_conversations(self) -> None:
        """All of them are over."""
        self.conversations = None

    # -- what is durable, and a restart --------------------------------------------------------------------------------

    def take_closing(self) -> list[tuple[str, int]]:
        """Takes those that the next record, which is written now, does not name any more."""
        closing, self.closing = self.closing, []
        self.note_in_log(is_there=True)
        return closing

    def note_logged(self, member: Member) -> None:
        """The session log has the member as it is."""
        member.is_logged = True

    def recover_group(self, record: GroupRecord) -> bool:
        """Takes up what an earlier life of the home has written of this group; False if it was of an earlier group of
        the same name."""
        self.note_in_log(is_there=True)
        if record.born_us != self.born_us:
            return False
        self.settled, self.settled_before = SettledCursor(record.settled), SettledCursor(record.settled)
        self.put_back, self.dropped_before = set(record.open), set(record.dropped)
        self.assigned_before = {a.place: a for a in record.assigned}
        return True

    def restore(self, delivery: Delivery) -> bool:
        if self.settled_before is None:
            return True
        if delivery.place in self.dropped_before:
            return False
        if not self.members:
            return delivery.place in self.assigned_before
        return (
            delivery.place in self.assigned_before
            or delivery.place in self.put_back
            or not self.settled_before.covers(delivery)
        )

    def earlier_outcome(self, delivery: Delivery) -> Outcome:
        return super().earlier_outcome(delivery) if self.members else "ended"

    def may_be_known(self, place: Place, row: int) -> bool:
        return place in self.assigned_before or (
            self.settled_before is not None and self.settled_before.covers_row(row)
        )

    def forget_restored(self) -> list[int]:
        here = {delivery.place for delivery in (*self.queue, *self.tail)}
        self.closing += [(r.client, r.number) for place, r in self.assigned_before.items() if place not in here]
        self.assigned_before = {place: record for place, record in self.assigned_before.items() if place in here}
        self.put_back &= here
        self.settled_before, self.dropped_before = None, set()
        return []  # packet ids are the members'

    def settle(self, delivery: Delivery) -> None:
        self.settled.note(delivery)

    def forget_spooled(self, committed_row: int) -> None:
        if not self.reachable:
            super().forget_spooled(committed_row)

    def rows_in_memory(self) -> set[int]:
        in_hand = {assigned.delivery.row for assigned in self.assigned.values() if assigned.delivery.row is not None}
        return super().rows_in_memory() | in_hand


def _order(delivery: Delivery) -> tuple[bool, int]:
    """Where a delivery stands among those of its group: what has a row in the spool was offered before the rest."""
    return (True, delivery.pending.number) if delivery.row is None else (False, delivery.row)
