"""What share groups have assigned to one session (MQTT 5.0, 4.8.2; G8). Pure: no clock, no I/O.

An assignment is an ordinary delivery of the session, with a packet id of its own and a place in its window. Two things
are different. It waits apart from the session's queue: only while the client is connected, and never in the spool, for
the group keeps the message until it has the result. And at QoS 2 the group may send an assignment again after a crash;
so a session remembers which ones are over, until the group says that it forgets them too.
"""

from collections import deque
from collections.abc import Iterable

from gateway.shard.messages import Delivery, assigned_place, shard_of_place
from schemas.session_log import OutgoingRecord

Place = tuple[int, int]

KEPT_WAITING = 64
"""So many may wait for a window that the session's own messages have filled; others go back to their group."""


class SessionAssignments:
    """`groups` are the shards of the groups that the session is a member of, by name. `waiting` are assignments that
    are not sent, in order, `open` all that are not over, by place. `own_is_next`: a window with room is for the
    session's own queue first. `is_blocked`: its groups were told that it takes no more for now; `is_stuck`: since a
    while ago none of those that wait was sent.
    """

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        self.waiting: deque[Delivery] = deque()
        self.open: dict[Place, Delivery] = {}
        self.own_is_next = False
        self.is_blocked = False
        self.is_stuck = False
        self._over: dict[int, dict[int, None]] = {}
        """Numbers of QoS 2 assignments that are over, by shard of the group."""
        self._restored: dict[Place, OutgoingRecord] = {}
        """Exchanges that were open at a crash and have not come again."""

    def add(self, delivery: Delivery) -> None:
        """A new assignment, or one that goes on after a crash."""
        self.open[delivery.place] = delivery
        self.waiting.append(delivery)

    def had_turn(self, has_taken: bool, *, own_is_next: bool) -> None:
        """The session was to be sent what its client takes; whether any of those that wait was among it."""
        self.own_is_next = own_is_next
        self.is_stuck = self.is_stuck and not has_taken

    def block(self) -> bool:
        """Groups are to assign no more; False if they know."""
        is_new, self.is_blocked = not self.is_blocked, True
        self.is_stuck = self.is_stuck and not is_new
        return is_new

    def unblock(self) -> None:
        """Groups may assign again."""
        self.is_blocked = self.is_stuck = False

    def look(self) -> bool:
        """Whether none of those that wait was sent since the last look."""
        was_stuck, self.is_stuck = self.is_stuck, True
        return was_stuck

    def over(self, delivery: Delivery) -> None:
        """The session has nothing to do with it any more."""
        self.open.pop(delivery.place, None)

    def settle(self, delivery: Delivery) -> None:
        """A QoS 2 exchange is over: the same assignment must not be sent again."""
        self.over(delivery)
        self._remember(delivery.place)

    def is_over(self, place: Place) -> bool:
        """Whether a QoS 2 assignment is over, or at least with the client, by what is durable. PUBREC may be here, and
        its record not: the next home of the session would know nothing of it, and must hear from the group."""
        known, restored = self.open.get(place), self._restored.get(place)
        return (
            place[1] in self._over.get(shard_of_place(place), ())
            or (known is not None and known.finished)
            or (restored is not None and restored.released)
        )

    def take_up(self, delivery: Delivery) -> None:
        """Gives an assignment that comes again after a crash its packet id from before."""
        if self._restored and (record := self._restored.pop(delivery.place, None)) is not None:
            delivery.packet_id, delivery.dup = record.packet_id, True

    def completed(self, packet_id: int) -> None:
        """PUBCOMP for an exchange that was released before a restart."""
        for place, record in self._restored.items():
            if record.packet_id == packet_id and record.released:
                del self._restored[place]
                self._remember(place)
                return

    def to_release(self) -> list[int]:
        """Packet ids for which PUBREL is due on a new connection, from before a restart."""
        return [record.packet_id for record in self._restored.values() if record.released]

    def forget_below(self, shard: int, number: int) -> None:
        """The groups of a shard have forgotten their assignments below a number. They are mostly over in the order of
        their numbers; one that is not is forgotten later. What the client still has in hand goes on."""
        over = self._over.get(shard)
        while over and (first := next(iter(over))) < number:
            del over[first]
        if self._restored:
            self.forget(shard, [before for before in self.uncertain(shard) if before < number])

    def uncertain(self, shard: int) -> list[int]:
        """Numbers of exchanges from before a restart that the groups of a shard have not sent again."""
        restored = self._restored.items()
        return [place[1] for place, record in restored if shard_of_place(place) == shard and not record.released]

    def forget(self, shard: int, numbers: Iterable[int]) -> None:
        """The groups of a shard do not send these again: their packet ids are free, unless the client has them."""
        for place in [assigned_place(shard, number) for number in numbers]:
            if (record := self._restored.get(place)) is not None and not record.released:
                del self._restored[place]

    def recover(self, outgoing: Iterable[OutgoingRecord]) -> None:
        """Takes up what an earlier life of the home has written."""
        for record in outgoing:
            if record.packet_id:
                self._restored[record.place] = record
            else:
                self._remember(record.place)

    def records(self) -> list[OutgoingRecord]:
        """What has to be durable, but for what is in flight."""
        over = [assigned_place(shard, number) for shard, numbers in self._over.items() for number in numbers]
        return [*self._restored.values(), *(OutgoingRecord(0, *place, True) for place in over)]

    def packet_ids(self) -> list[int]:
        """Those that may not be given to others."""
        return [record.packet_id for record in self._restored.values()]

    def take_back(self, kept: int, group: str | None) -> list[Delivery]:
        """Takes those that wait and may go to another member out of the session: those of `group` only, if it is
        given, and not the first `kept`."""
        staying, returned = deque[Delivery](), list[Delivery]()
        for number, delivery in enumerate(self.waiting):
            is_wanted = group is None or (delivery.assigned is not None and delivery.assigned.group == group)
            (returned if number >= kept and delivery.may_return and is_wanted else staying).append(delivery)
        self.waiting = staying
        for delivery in returned:
            self.over(delivery)
        return returned

    def _remember(self, place: Place) -> None:
        self._over.setdefault(shard_of_place(place), {})[place[1]] = None
