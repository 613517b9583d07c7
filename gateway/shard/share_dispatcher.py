"""Assigning what share groups have: from a group's queue to one member, and what becomes of it (MQTT 5.0, 4.8.2; R6).

Theory of operation. The groups are those of this shard; their members may be in any. Both sides speak by messages only
(:mod:`gateway.shard.share_messages`). A delivery goes: queued → assigned → finished, or back into the queue.

* At QoS 2 the group's record in the session log names the assignment before it is sent. So after a crash the same
  assignment goes to the same session again, and to no other [MQTT-4.8.2-4], [MQTT-4.8.2-5]; the session knows by the
  number what it has of it. At QoS 0 and 1 nothing is logged: what nobody has acknowledged waits again.
* An assignment comes back only by a message of the member's shard, never on suspicion; and only by an answer to when
  it was sent last, for it may have been given back before that, and be in the session's hands since.
* What is over leaves the record when that is written next, not at once. Until then a crash sends it again, and so the
  session must remember it: `open_from` in each assignment says what it may forget.
* A group without members keeps what is assigned at QoS 2 until the results are there.

Who belongs to a group: :mod:`gateway.shard.group_members`. Pure: no clock, no I/O.
"""

from collections.abc import Callable
from functools import partial
from itertools import repeat

from gateway.shard.conversation_keeper import ConversationKeeper
from gateway.shard.group_needs import GroupLog, GroupQueues
from gateway.shard.messages import Assignment
from gateway.shard.shard import Shard
from gateway.shard.share_group import ShareGroup
from gateway.shard.share_groups import ShareGroups
from gateway.shard.share_member import Assigned, Member
from gateway.shard.share_messages import (
    Assign,
    Finished,
    Forgotten,
    Reachable,
    Result,
    Returned,
    ToMember,
    Uncertain,
)
from schemas.envelope import CONVERSATION_FLAG
from schemas.identity import shard_of
from schemas.session_log import KIND_OF_GROUP, GroupRecord

_CHUNK = 64
_MOST_CLOSING = 1_000


class ShareDispatcher:
    """Has the assignments of a shard's groups. `committed_row` is the last row that the spool holds, `epoch` that of
    the shard's home; `post` sends a message to the shard of a member."""

    def __init__(
        self,
        shard: Shard,
        groups: ShareGroups,
        queues: GroupQueues,
        log: GroupLog,
        committed_row: Callable[[], int],
        epoch: Callable[[], int],
        shards: int,
        post: Callable[[int, ToMember], None],
        conversations: ConversationKeeper,
    ) -> None:
        self._shard = shard
        self._groups = groups
        self._queues = queues
        self._session_log = log
        self._committed_row = committed_row
        self._epoch = epoch
        self._shards = shards
        self._post = post
        self.conversations = conversations
        self._assigned: dict[int, Assigned] = {}
        self._open: dict[str, dict[int, None]] = {}
        """Numbers that the record of a group may name, by client, lowest first."""
        self._asked: dict[int, Uncertain] = {}
        """Those of them that a session wants to know of once they are forgotten."""

    def receive(self, message: Finished | Returned | Reachable | Uncertain) -> None:
        """What the shard of a member says."""
        if isinstance(message, Finished):
            self._finished(message.number, message.result)
        elif isinstance(message, Uncertain):
            self._answer(message)
        elif isinstance(message, Returned):
            self._returned(message)
        else:
            self._reach(message)

    def started(self, shard: int) -> None:
        """The home of a shard has started: it knows of nothing that was sent to an earlier one."""
        lost = []
        for assigned in [a for a in self._assigned.values() if a.shard == shard]:
            if assigned.qos < 2:
                lost.append(self._assigned.pop(assigned.number))
            elif assigned.times_sent:
                self._send([assigned])
        self._take_back(lost)

    def recover(self, group: ShareGroup, record: GroupRecord) -> None:
        """Takes up what an earlier life of the home has assigned."""
        if group.recover_group(record):
            for assigned in record.assigned:
                numbers = {*self._open.get(assigned.client, ()), assigned.number}
                self._open[assigned.client] = dict.fromkeys(sorted(numbers))

    def begin(self) -> None:
        """After a recovery: sends again what was assigned and is not over, as far as it waits in the spool."""
        for group in self._groups:
            if group.assigned_before:
                self._queues.wake(group)

    def sweep(self) -> None:
        """Ends groups without members of which nothing has come again since a restart; tells sessions that have asked
        what does not come again."""
        for group in self._groups:
            if not group.members:
                self._end_if_over(group)
            elif self._asked and group.closing:
                self._write_record(group, None)
            if self.conversations.sweep(group):
                self._queues.wake(group)
        self.conversations.end_records()

    # -- members come and go -------------------------------------------------------------------------------------------

    def joined(self, group: ShareGroup) -> None:
        """There is a member more, or one has new options."""
        self._queues.wake(group)

    def away(self, group: ShareGroup, member: Member) -> None:
        """A member takes nothing until its shard says otherwise."""
        self._set_capacity(group, member, None)
        group.goes_away(member, self._groups.clock.now)

    def left(self, group: ShareGroup) -> None:
        """There is a member less."""
        self._look_who_is_there(group)
        if group.members:
            self._groups.match(group)
        else:
            self._end(group)

    def _reach(self, message: Reachable) -> None:
        group = self._groups.find(message.group)
        member = None if group is None else group.member(message.client, message.session)
        if group is not None and member is not None:
            self._set_capacity(group, member, message.capacity)

    def _set_capacity(self, group: ShareGroup, member: Member, capacity: int | None) -> None:
        if capacity is None and member.capacity is None:
            return
        if capacity is None:
            group.goes_away(member, self._groups.clock.now)
        else:
            group.reach(member, capacity)
        self._look_who_is_there(group)

    def _look_who_is_there(self, group: ShareGroup) -> None:
        """Members may take something; or nobody is there, and what waits goes where it keeps longer, or ends."""
        if group.reachable:
            self._queues.wake(group)
        else:
            self._queues.drop_qos0(group)
            group.forget_spooled(self._committed_row())

    def _end(self, group: ShareGroup) -> None:
        """The last member has left: what waits ends, and what members have at QoS 0 and 1 does for the group."""
        self._groups.unsubscribe(group)
        self._queues.end(group)
        self.conversations.end(group)
        group.put_back.clear()
        group.had.clear()
        for assigned in [a for a in group.assigned.values() if a.qos < 2]:
            self._assigned.pop(assigned.number, None)
            group.close(assigned)
            self._queues.finish(assigned.delivery, "ended")
        self._end_if_over(group)

    def _end_if_over(self, group: ShareGroup) -> None:
        if group.is_over and not group.ended:
            self._groups.remove(group)
            closing = group.take_closing()
            if group.in_log:
                self._session_log.ended(group, lambda: self._forget(closing), kinds=[KIND_OF_GROUP])

    # -- assigning -----------------------------------------------------------------------------------------------------

    def pump(self, group: ShareGroup) -> None:
        """Assigns the next of the queue, as far as members have capacity; more once they have heard of it."""
        if not group.is_reachable or group.sending:
            return
        if not group.queue:
            self._queues.load(group)
            return
        taken = self._take(group)
        is_exact = any(assigned.qos == 2 and not assigned.is_logged for assigned in taken)
        send: Callable[[], None] = partial(self._send_logged, group, taken)
        if self.conversations.log(group, None if is_exact else send) or is_exact:
            group.begin_sending()
            if is_exact:
                self._write_record(group, send)
        elif taken:
            self._send(taken)
            self._queues.wake(group)
        elif self.conversations.may_load(group):  # what was loaded has expired, or all of it waits
            self._queues.load(group)

    def _take(self, group: ShareGroup) -> list[Assigned]:
        """What was assigned before a restart, and the next of the queue, in order; fewer than `_CHUNK` if nobody has
        capacity for more."""
        taken = []
        for delivery in [e for e in group.queue if e.place in group.assigned_before] if group.assigned_before else ():
            client = group.assigned_before[delivery.place].client
            taken.append(self._note(group.assign_again(delivery, shard_of(client, self._shards))))
            self.conversations.taken_again(group, taken[-1])
        passed = self.conversations.passed(group)
        may_be_held = passed > 0
        while len(taken) < _CHUNK:
            held = self.conversations.next_held(group) if may_be_held else None
            may_be_held = held is not None
            if held is None and len(group.queue) == passed:
                break
            delivery, choice = (group.queue[passed], None) if held is None else held
            if self._queues.is_expired(delivery):
                self._queues.finish(group.take_next(delivery), "expired")
                if held is not None:
                    self.conversations.let_go(group, held[1])
                    passed -= 1
                continue
            if not group.has_room_for(delivery):
                break
            if choice is None and CONVERSATION_FLAG in delivery.pending.message.flags:
                choice = self.conversations.choose(group, delivery)
                if choice.waits:
                    if not self.conversations.set_aside(group, delivery, choice):
                        break
                    passed += 1
                    continue
            member = group.choose() if choice is None else choice.member
            number = None if member is None else self._shard.assignment_numbers.take()
            if member is None or number is None:
                break
            taken.append(self._note(group.assign(delivery, number, member)))
            if choice is not None:
                self.conversations.taken(group, taken[-1], choice)
                if held is not None:
                    self.conversations.let_go(group, choice)
                    passed -= 1
        return taken

    def _note(self, assigned: Assigned) -> Assigned:
        self._assigned[assigned.number] = assigned
        if assigned.qos == 2:
            self._open.setdefault(assigned.client, {})[assigned.number] = None
        return assigned

    def _send_logged(self, group: ShareGroup, taken: list[Assigned]) -> None:
        group.end_sending()
        self._send(taken)
        self.pump(group)

    def _send(self, taken: list[Assigned]) -> None:
        for assigned in taken:
            number = assigned.number
            group = assigned.group
            if self._assigned.get(number) is not assigned:  # it is over, or waits again, since the record was written
                continue
            is_new = not (assigned.is_logged or assigned.times_sent)
            if is_new and group.member(assigned.client, assigned.session) is None:  # it has left
                if self._assigned.pop(number, None) is not None:
                    self._take_back([assigned])
                continue
            group.sent(assigned)
            self._post(
                assigned.shard,
                Assign(
                    Assignment(group.name, self._shard.number, number),
                    assigned.client,
                    assigned.session,
                    self.conversations.message(assigned),
                    assigned.qos,
                    assigned.retain,
                    assigned.subscription_ids,
                    assigned.packet_id,
                    next(iter(self._open[assigned.client])) if assigned.qos == 2 else 0,
                    (self._epoch(), assigned.times_sent),
                ),
            )

    # -- results -------------------------------------------------------------------------------------------------------

    def _finished(self, number: int, result: Result) -> None:
        assigned = self._assigned.pop(number, None)
        if assigned is None:
            return
        group, delivery = assigned.group, assigned.delivery
        if result == "unknown":
            self._reach(Reachable(group.name, assigned.client, assigned.session, None))
            if assigned.qos < 2 or (assigned.times_sent == 1 and not assigned.is_logged):  # the session never had it
                self._take_back([assigned])
                return
            group.unknown(assigned)
        self.conversations.finished(assigned, result)
        group.close(assigned)
        if assigned.qos == 2:
            group.settle(delivery)
        self._queues.finish(delivery, "ended" if result == "unknown" else result)
        self._freed(group)

    def _returned(self, message: Returned) -> None:
        returned, epoch = [], self._epoch()
        sendings = message.sendings or repeat(None)
        for (number, packet_id), sending in zip(message.assignments, sendings, strict=False):
            assigned = self._assigned.get(number)
            if assigned is None or sending not in (None, (epoch, assigned.times_sent)):
                continue
            del self._assigned[number]
            assigned.group.returned(assigned, packet_id)
            returned.append(assigned)
        self._take_back(returned)

    def _take_back(self, returned: list[Assigned]) -> None:
        """Others may get them. What is logged as assigned must not stay so: a crash would leave it to that member."""
        groups: dict[ShareGroup, list[Assigned]] = {}
        for assigned in returned:
            groups.setdefault(assigned.group, []).append(assigned)
        for group, some in groups.items():
            for assigned in some:
                group.close(assigned)
            if not group.members:
                for assigned in some:
                    self._queues.finish(assigned.delivery, "ended")
            else:
                group.take_back(some)
                if any(assigned.qos == 2 for assigned in some):
                    self._write_record(group, None)
                self._look_who_is_there(group)
            self._freed(group)

    def _freed(self, group: ShareGroup) -> None:
        if group.members:
            if group.queue or group.backlog:
                self._queues.wake(group)
            if len(group.closing) >= _MOST_CLOSING:
                self._write_record(group, None)
        else:
            self._end_if_over(group)

    # -- the record ----------------------------------------------------------------------------------------------------

    def _write_record(self, group: ShareGroup, then: Callable[[], None] | None) -> None:
        """Runs `then` once the group's record is durable; what it does not name any more, sessions may forget then."""
        closing = group.take_closing()

        def stored() -> None:
            self._forget(closing)
            if then is not None:
                then()

        self._session_log.windows(group, stored)

    def _forget(self, closing: list[tuple[str, int]]) -> None:
        for client, number in closing:
            numbers = self._open.get(client)
            if numbers is not None:
                numbers.pop(number, None)
                if not numbers:
                    del self._open[client]
            if self._asked and (asked := self._asked.pop(number, None)) is not None:
                self._post_forgotten(asked, [number])

    def _answer(self, asked: Uncertain) -> None:
        """A record may name an assignment whose message is gone. So what is open now may be forgotten unsent."""
        known = self._open.get(asked.client, {})
        for number in known.keys() & asked.numbers:
            self._asked[number] = asked
        forgotten = [number for number in asked.numbers if number not in known]
        if forgotten:
            self._post_forgotten(asked, forgotten)

    def _post_forgotten(self, asked: Uncertain, numbers: list[int]) -> None:
        self._post(asked.shard, Forgotten(asked.client, asked.session, self._shard.number, numbers))
