"""The sessions of one shard as members of share groups, which may be in other shards (MQTT 5.0, 4.8.2; R6).

A group assigns a message to a member only as far as the member's capacity goes. So hardly anything waits with a member
that others could have: what a slow client does not take goes back. What was sent at QoS 2 stays with its session, also
across a restart. What was sent at QoS 1 goes back when the connection is lost, for others to get it; unless the session
has left the group: then it gets that itself, as the standard asks [MQTT-3.10.4-3].

Pure: no clock, no I/O. Who has to wait for a group's answer does so in :mod:`gateway.shard.group_requests`.
"""

from collections.abc import Callable, Mapping

from gateway.shard.messages import Delivery, Outcome, PendingMessage
from gateway.shard.ready import ReadySessions
from gateway.shard.session import Session
from gateway.shard.session_assignments import KEPT_WAITING, SessionAssignments
from gateway.shard.share_messages import (
    Assign,
    Finished,
    Forgotten,
    Join,
    Leave,
    Reachable,
    Returned,
    ToGroup,
    Uncertain,
)
from schemas.session_log import SubscriptionRecord


class Memberships:
    """Knows the groups of each session, takes what they assign, and says what has become of it.

    `post` sends a message to the shard of a group; `shard_of` gives that, by name; `pump` sends what a session has.
    `post_confirmed` does so once it is known that the shard was still this home's, and before what is posted later.
    """

    def __init__(
        self,
        shard: int,
        sessions: Mapping[str, Session],
        shard_of: Callable[[str], int],
        post: Callable[[int, ToGroup], None],
        ready: ReadySessions,
        pump: Callable[[Session], None],
        post_confirmed: Callable[[int, Returned], None],
    ) -> None:
        self._shard = shard
        self._sessions = sessions
        self._shard_of = shard_of
        self._post = post
        self._ready = ready
        self._pump = pump
        self._post_confirmed = post_confirmed
        self._blocked: dict[Session, None] = {}

    # -- belonging to groups -------------------------------------------------------------------------------------------

    def joining(self, session: Session, record: SubscriptionRecord) -> Join:
        """What tells the group `record.filter` that a session is a member of it, as it is now."""
        is_blocked = session.assignments is not None and session.assignments.is_blocked
        capacity = None if session.link is None else 0 if is_blocked else _capacity(session)
        return Join(record.filter, session.client, session.incarnation, self._shard, record, capacity, None)

    def leaving(self, session: Session, name: str) -> Leave:
        """What tells a group that a session leaves it; what waits for the session goes back."""
        self._give_back(session.take_back_assigned(group=name))
        return self._left(session, name)

    def forget(self, session: Session, name: str) -> None:
        """The session is over, and with it its membership."""
        self._post(self._shard_of(name), self._left(session, name))

    def belongs(self, session: Session, name: str) -> None:
        """The session is a member, or was found as one in the session log."""
        session.assigning().groups[name] = self._shard_of(name)

    def joined(self, session: Session, joining: Join) -> None:
        """The group has taken the session as a member, as it was then: its connection may have come or gone since."""
        self.belongs(session, joining.group)
        capacity = self.joining(session, joining.record).capacity
        if capacity != joining.capacity:
            of = joining.group, session.client, session.incarnation
            self._post(self._shard_of(joining.group), Reachable(*of, capacity))

    def announce(self, shard: int) -> None:
        """Tells the home of a shard which members its groups have here, and asks it about the exchanges of which nobody
        here knows whether they come again: one of the two has just started."""
        for session in list(self._sessions.values()):
            assignments = session.assignments
            if assignments is None:
                continue
            for name in [n for n, of in assignments.groups.items() if of == shard and n in session.subscriptions]:
                self._post(shard, self.joining(session, session.subscriptions[name].record))
            if numbers := assignments.uncertain(shard):
                self._post(shard, Uncertain(session.client, session.incarnation, self._shard, numbers))

    def _left(self, session: Session, name: str) -> Leave:
        if session.assignments is not None:
            session.assignments.groups.pop(name, None)
        return Leave(name, session.client, session.incarnation, self._shard, None)

    # -- connections come and go ---------------------------------------------------------------------------------------

    def resume(self, session: Session) -> None:
        """A connection is there: groups may assign."""
        assignments = session.assignments
        if assignments is None or session.link is None:
            return
        for packet_id in assignments.to_release():
            session.link.release(packet_id)
        assignments.unblock()
        self._announce(session, assignments, _capacity(session))

    def lost(self, session: Session) -> None:
        """The connection is gone: what others may get goes back."""
        if session.assignments is None:
            return
        self._give_back([*session.take_back_unacknowledged(), *session.take_back_assigned()])
        self._announce(session, session.assignments, None)

    def pumped(self, session: Session) -> None:
        """The session was sent what its client takes now. What it does not take goes back, and nothing more comes until
        it does."""
        assignments, link = session.assignments, session.link
        if assignments is None or link is None or not (assignments.waiting or assignments.is_blocked):
            return
        is_full = session.is_window_full
        if assignments.waiting and (is_full or not link.writable):
            kept = min(KEPT_WAITING, max(1, session.receive_maximum // 2)) if link.writable else 0
            self._give_back(session.take_back_assigned(kept=kept))
            if assignments.block():
                self._blocked[session] = None
                self._announce(session, assignments, 0)
        elif link.writable and not assignments.waiting and not (is_full and assignments.is_stuck):
            assignments.unblock()
            self._announce(session, assignments, _capacity(session))

    def sweep(self) -> None:
        """Every second: what waits with a client that answers nothing goes back."""
        for session in list(self._blocked):
            assignments = session.assignments
            if assignments is None or not assignments.is_blocked or session.ended:
                self._blocked.pop(session, None)
            elif assignments.look():
                self._give_back(session.take_back_assigned())

    # -- assignments ---------------------------------------------------------------------------------------------------

    def finished(self, delivery: Delivery, outcome: Outcome) -> None:
        """The session is finished with what it was assigned: what was never sent may go to others."""
        assignment = delivery.assigned
        if assignment is None:
            raise AssertionError("the delivery is not an assignment")
        session = self._sessions.get(delivery.client)
        if session is not None and session.assignments is not None and (delivery.qos < 2 or not delivery.released):
            session.assignments.over(delivery)
        if outcome == "ended" and delivery.may_return:
            self._give_back([delivery])
        else:
            self._post(assignment.shard, Finished(assignment.number, outcome))

    def assign(self, message: Assign) -> None:
        """A group assigns a message to a session."""
        assignment, session = message.assignment, self._sessions.get(message.client)
        if session is None or session.incarnation != message.session:
            self._post(assignment.shard, Finished(assignment.number, "unknown"))
            return
        assignments = session.assigning()
        if message.qos == 2:
            assignments.forget_below(assignment.shard, message.open_from)
        if assignments.is_over(assignment.place):
            self._post(assignment.shard, Finished(assignment.number, "delivered"))
            return
        if (known := assignments.open.get(assignment.place)) is not None:
            known.sending = message.sending
            return
        pending = PendingMessage(message.message, self._shard, -1, 0, [], spooled=True)
        delivery = Delivery(
            message.client,
            pending,
            message.qos,
            message.retain,
            message.subscription_ids,
            assigned=assignment,
            sending=message.sending,
        )
        session.accept_assignment(delivery, message.packet_id)
        if session.link is None:
            self._give_back(session.take_back_assigned())
        else:
            self._ready.add(session, self._pump)

    def forgotten(self, message: Forgotten) -> None:
        """The groups of a shard do not send these assignments again."""
        session = self._sessions.get(message.client)
        if session is not None and session.incarnation == message.session and session.assignments is not None:
            session.assignments.forget(message.shard, message.numbers)

    def _give_back(self, deliveries: list[Delivery]) -> None:
        """What was assigned at QoS 2 only if the shard is this home's: else the next one may have it too, from the log,
        while another member gets it."""
        messages: dict[tuple[int, bool], Returned] = {}
        for delivery in deliveries:
            if delivery.assigned is not None:
                delivery.finished = True
                packet_id = delivery.packet_id if delivery.sent or delivery.dup else 0
                message = messages.setdefault((delivery.assigned.shard, delivery.qos == 2), Returned([], []))
                message.assignments.append((delivery.assigned.number, packet_id))
                message.sendings.append(delivery.sending)
        for (shard, is_exact), returned in messages.items():
            (self._post_confirmed if is_exact else self._post)(shard, returned)

    def _announce(self, session: Session, assignments: SessionAssignments, capacity: int | None) -> None:
        for name, shard in assignments.groups.items():
            self._post(shard, Reachable(name, session.client, session.incarnation, capacity))


def _capacity(session: Session) -> int:
    """How many assignments a connected session takes: what its own messages leave of the window."""
    assignments = session.assignments
    assigned = 0 if assignments is None else len(assignments.open) - len(assignments.waiting)
    return max(1, session.receive_maximum - len(session.in_flight) + assigned)
