"""The durable state of a client across connections: subscriptions, queue, and both windows (MQTT 5.0, 4.1; G8, G9).

Pure: no clock, no I/O. The home performs what the methods return.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from gateway.shard.cursor import SettledCursor
from gateway.shard.link import Link
from gateway.shard.messages import Entry, Outcome, is_assigned
from gateway.shard.rules import EVERYTHING, ClientRules
from gateway.shard.session_assignments import SessionAssignments
from gateway.shard.subscription import SessionSubscription
from schemas.envelope import Incarnation
from schemas.session_log import OutgoingRecord, WillRecord, WindowRecord

MAX_PACKET_ID = 65_535


@dataclass(slots=True, weakref_slot=True, eq=False)
class Session:
    """One client's session. `queue` holds entries not sent yet, `in_flight` those sent and not finished, by packet id.

    `backlog` counts rows in the spool that are not in memory; while there are any, new entries wait in `tail` so that
    order is kept. `persistent` sessions outlive their connection and are written to the session log. `born_us` (µs
    since the epoch) and `shard_epoch` tell a session from others of its client; `ended` once it is over, whoever still
    holds it.

    `settled` is up to where QoS 2 exchanges are over. What it covers and is not finished is in flight or in `put_back`:
    places of messages that were taken for sending and wait again, here or in the spool. After a restart `restored` are
    the exchanges that were open, and `replayed` what was settled, until all has come again that can. What was appended
    by `sent_to_ms` may have been sent by an earlier life of the home, which keeps no record of that at QoS 1.

    `dropping` are entries taken out of a full queue whose end is not durable yet, by place; `dropped` the places of
    all that were, until a checkpoint has seen their end, and `dropped_before` those of an earlier life of the home.

    `kept_packet_ids` are those of entries that were sent and wait to be sent again.

    `peer` (`address:port`) and `protocol` are those of the last connection since the gateway was started.

    `assignments` are what share groups have assigned to it, None if it has never been a member of one.
    """

    is_group: ClassVar[bool] = False

    client: str
    shard: int
    since: int
    born_us: int = 0
    shard_epoch: int = 0
    ended: bool = False
    wills_on_way: list[WillRecord] = field(default_factory=list)
    will_waiters: list[Callable[[], None]] = field(default_factory=list)
    expiry_s: int = 0
    disconnected_ms: int | None = None
    will: WillRecord | None = None
    link: Link | None = None
    rules: ClientRules = EVERYTHING
    peer: str = ""
    protocol: str = ""
    user: str = ""
    epoch: int = 0
    events: int = 0
    subscriptions: dict[str, SessionSubscription] = field(default_factory=dict)
    queue: deque[Entry] = field(default_factory=deque)
    tail: deque[Entry] = field(default_factory=deque)
    in_flight: dict[int, Entry] = field(default_factory=dict)
    restored: dict[tuple[int, int], OutgoingRecord] = field(default_factory=dict)
    settled: SettledCursor = field(default_factory=SettledCursor)
    put_back: set[tuple[int, int]] = field(default_factory=set)
    replayed: SettledCursor | None = None
    dropping: dict[tuple[int, int], Entry] = field(default_factory=dict)
    dropped: set[tuple[int, int]] = field(default_factory=set)
    dropped_before: set[tuple[int, int]] = field(default_factory=set)
    sent_to_ms: int = -1
    received: set[int] = field(default_factory=set)
    publishing: set[int] = field(default_factory=set)
    received_until: int = -1
    inbound_dirty: bool = False
    receive_maximum: int = MAX_PACKET_ID
    assignments: SessionAssignments | None = None
    backlog: int = 0
    loaded_row: int = 0
    loading: bool = False
    queued_bytes: int = 0
    retained_sent: dict[str, float] = field(default_factory=dict)
    subscribing: int = 0
    live_meanwhile: set[str] = field(default_factory=set)
    in_log: bool = False
    logging: bool = False
    after_log: list[Callable[[], None]] = field(default_factory=list)
    sending: bool = False
    kept_packet_ids: set[int] = field(default_factory=set)
    _last_packet_id: int = 0

    @property
    def spool_key(self) -> str:
        """Its name in the spool: another session of the same client has another."""
        return f"{self.client}\0{self.born_us}"

    @property
    def incarnation(self) -> Incarnation:
        """Which session of its client it is."""
        return Incarnation(self.shard_epoch, self.born_us)

    @property
    def persistent(self) -> bool:
        return self.expiry_s > 0

    @property
    def logged(self) -> bool:
        """Whether the session log holds it: it outlives its connection, or has a will to be published after a crash."""
        return self.persistent or self.will is not None

    @property
    def is_reachable(self) -> bool:
        """Whether anybody is there to deliver to."""
        return self.link is not None

    @property
    def unacknowledged(self) -> int:
        """Messages at QoS 1 and 2 that the client has in hand, or will have at once."""
        return len(self.in_flight)

    def has_in_hand(self, entry: Entry) -> bool:
        """Whether what was delivered to the client as `entry` is still open."""
        return self.in_flight.get(entry.packet_id) is entry

    @property
    def is_window_full(self) -> bool:
        """Whether the client takes no more at QoS 1 and 2 for now."""
        return len(self.in_flight) >= self.receive_maximum

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
        return self.replayed is not None or bool(self.restored)

    @property
    def is_unsettled(self) -> bool:
        """Whether a checkpoint has something to write of it, or to forget."""
        return self.inbound_dirty or self.is_recovering or bool(self.dropped or self.dropping)

    @property
    def queued(self) -> int:
        """Messages waiting, in memory and in the spool."""
        return len(self.queue) + len(self.tail) + self.backlog

    def enqueue(self, entry: Entry) -> None:
        (self.tail if self.backlog or self.tail else self.queue).append(entry)
        self.queued_bytes += len(entry.held.message.payload)

    def take(self, most: int) -> list[Entry]:
        """Up to `most` entries that may be sent now, oldest first, with packet ids; in flight afterwards (QoS > 0).
        What share groups have assigned takes turns with the queue."""
        assignments, taken = self.assignments, list[Entry]()
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

    def _take(self, waiting: deque[Entry], most: int, taken: list[Entry]) -> bool:
        """Adds entries to those taken; whether there was room for any."""
        before, in_flight, is_own = len(taken), self.in_flight, waiting is self.queue
        while waiting and len(taken) < most:
            entry = waiting[0]
            if entry.qos:
                if len(in_flight) >= self.receive_maximum:
                    break
                if not entry.packet_id:
                    entry.packet_id = self._free_packet_id()
                self.kept_packet_ids.discard(entry.packet_id)
                if self.put_back:
                    self.put_back.discard(entry.place)
                in_flight[entry.packet_id] = entry
            waiting.popleft()
            if is_own:
                self.queued_bytes -= len(entry.held.message.payload)
            taken.append(entry)
        return len(taken) > before

    def assigning(self) -> SessionAssignments:
        """What share groups have assigned to it, from now on if not before."""
        assignments = self.assignments = self.assignments or SessionAssignments()
        return assignments

    def accept_assignment(self, entry: Entry, packet_id: int) -> None:
        """Takes what a share group has assigned to the session; it waits to be sent. It was sent before, with
        `packet_id`, unless that is 0."""
        assignments = self.assigning()
        assignments.take_up(entry)
        if packet_id:
            entry.dup = True
            if packet_id not in self.in_flight and packet_id not in self.kept_packet_ids:
                entry.packet_id = packet_id
        if entry.packet_id:
            self.kept_packet_ids.add(entry.packet_id)
        assignments.add(entry)

    def take_back_assigned(self, *, kept: int = 0, group: str | None = None) -> list[Entry]:
        """Takes assignments that wait, and may go to another member, out of the session: those of `group` only, if it
        is given, and not the first `kept`."""
        returned = [] if self.assignments is None else self.assignments.take_back(kept, group)
        self.kept_packet_ids.difference_update([entry.packet_id for entry in returned])
        return returned

    def take_back_unacknowledged(self) -> list[Entry]:
        """Takes out of the session what groups that it is a member of have assigned at QoS 1, and was sent."""
        if (assignments := self.assignments) is None:
            return []
        groups = assignments.groups
        sent = [e for e in self.in_flight.values() if e.qos == 1 and e.assigned and e.assigned.group in groups]
        for entry in sent:
            del self.in_flight[entry.packet_id]
            assignments.over(entry)
        return sent

    def recover(self, record: WindowRecord) -> None:
        """Takes up the windows that an earlier life of the home has written."""
        self.restored = {o.place: o for o in record.outgoing if not is_assigned(o.place)}
        self.recover_assignments([o for o in record.outgoing if is_assigned(o.place)])
        self.settled, self.replayed = SettledCursor(record.settled), SettledCursor(record.settled)
        self.put_back = set(record.open)
        self.dropped_before = set(record.dropped)
        self.received, self.received_until = set(record.received), record.received_until

    def recover_assignments(self, outgoing: list[OutgoingRecord]) -> None:
        """Takes up what an earlier life of the home has written of QoS 2 assignments."""
        if outgoing:
            self.assigning().recover(outgoing)

    def restore(self, entry: Entry) -> bool:
        """Gives an entry that a recovery brings again its place from before; False if it is finished (see
        `earlier_outcome`)."""
        if self.replayed is None:
            return True
        if entry.place in self.dropped_before:
            return False
        record = self.restored.get(entry.place)
        if record is None:
            return entry.place in self.put_back or not self.replayed.covers(entry)
        if record.released:
            return False
        entry.packet_id, entry.dup = record.packet_id, True
        self.kept_packet_ids.add(record.packet_id)
        return True

    def earlier_outcome(self, entry: Entry) -> Outcome:
        """What had become of an entry that a recovery brings again for nothing."""
        return "dropped" if entry.place in self.dropped_before else "delivered"

    def may_be_known(self, place: tuple[int, int], row: int) -> bool:
        """Whether the client may have had a message in the spool before a restart, which is not recovered yet."""
        return place in self.restored or (self.replayed is not None and self.replayed.covers_row(row))

    def resend(self) -> list[Entry]:
        """What was sent on an earlier connection and is not finished, in order: PUBREL is due for those `released`,
        else PUBLISH with DUP. What the client's window no longer takes goes back to the head of the queue."""
        again = [entry for entry in self.in_flight.values() if entry.sent]
        for entry in again:
            entry.dup = True
        fitting = [entry for entry in again if entry.released]
        waiting = [entry for entry in again if not entry.released]
        unsent = len(self.in_flight) - len(again)
        room = max(0, self.receive_maximum - len(fitting) - unsent)
        self.requeue(waiting[room:])
        return fitting + waiting[:room]

    def requeue(self, entries: list[Entry]) -> None:
        """Puts entries that were taken back at the head of the queue, in order; those sent keep their packet id."""
        for entry in reversed(entries):
            self.in_flight.pop(entry.packet_id, None)
            if entry.dup:
                self.kept_packet_ids.add(entry.packet_id)
            else:
                entry.packet_id = 0
            if entry.assigned is not None and self.assignments is not None:
                self.assignments.waiting.appendleft(entry)
                continue
            self.put_back.add(entry.place)
            self.queue.appendleft(entry)
            self.queued_bytes += len(entry.held.message.payload)

    def forget_spooled(self, committed_row: int) -> None:
        """Drops from memory what waits and is in the spool too, up to `committed_row`; the rest waits behind it.

        What has a packet id of its own stays, at the head. Only an unbroken run is dropped, so that order is kept.
        """
        waiting, in_queue = [*self.queue, *self.tail], len(self.queue)
        kept = self.kept_packet_ids
        spooled = [e.row is not None and e.row <= committed_row and e.packet_id not in kept for e in waiting]
        first = spooled.index(True) if True in spooled else len(waiting)
        last = spooled.index(False, first) if False in spooled[first:] else len(waiting)
        rows = [entry.row for entry in waiting[first:last] if entry.row is not None]
        if not rows or first > in_queue or (self.backlog and last < in_queue):
            return
        self.loaded_row = min(self.loaded_row, rows[0] - 1) if self.backlog else rows[0] - 1
        self.backlog += len(rows)
        self.queue = deque(waiting[:first])
        self.tail = deque(waiting[last:])

    def remove(self, entry: Entry) -> None:
        """Takes an entry that waits out of the queue."""
        for waiting in (self.queue, self.tail):
            if waiting and waiting[0] is entry:  # as it mostly is: the others need not be looked at
                waiting.popleft()
                self.queued_bytes -= len(entry.held.message.payload)
                return
        for waiting in (self.queue, self.tail):
            if entry in waiting:
                waiting.remove(entry)
                self.queued_bytes -= len(entry.held.message.payload)

    def take_unsent(self, *, behind_backlog: bool) -> Entry | None:
        """Takes the oldest entry that was never sent out of the queue, to be dropped; None if there is none before the
        backlog. `behind_backlog`: or behind it."""
        for waiting in (self.queue, self.tail) if behind_backlog else (self.queue,):
            for position, entry in enumerate(waiting):
                if not (entry.sent or entry.dup or entry.packet_id):
                    del waiting[position]
                    self.queued_bytes -= len(entry.held.message.payload)
                    self.put_back.discard(entry.place)
                    return entry
        return None

    def note_dropping(self, entry: Entry) -> None:
        self.dropping[entry.place] = entry
        self.dropped.add(entry.place)

    def remove_qos0(self) -> list[Entry]:
        """Takes what waits at QoS 0 out of the queue."""
        waiting = (*self.queue, *self.tail)
        removed = [entry for entry in waiting if not entry.qos]
        if removed:
            self.queue = deque(entry for entry in self.queue if entry.qos)
            self.tail = deque(entry for entry in self.tail if entry.qos)
            self.queued_bytes -= sum(len(entry.held.message.payload) for entry in removed)
        return removed

    def join_tail(self) -> None:
        """Lets what waited behind the spool move up once nothing is left there."""
        if not self.backlog:
            self.queue.extend(self.tail)
            self.tail.clear()
            self.queued_bytes = sum(len(entry.held.message.payload) for entry in self.queue)

    def rows_in_memory(self) -> set[int]:
        waiting = (*self.queue, *self.tail, *self.in_flight.values(), *self.dropping.values())
        return {entry.row for entry in waiting if entry.row is not None}

    def settle(self, entry: Entry) -> None:
        """A QoS 2 exchange is over: whatever brings the message again, it must not be sent again."""
        if entry.assigned is not None and self.assignments is not None:
            self.assignments.settle(entry)
            return
        self.restored.pop(entry.place, None)
        self.settled.note(entry)

    def forget_restored(self) -> None:
        """All that was there before the restart has been read again: what has not come will not come."""
        here = {entry.place for entry in (*self.queue, *self.tail, *self.in_flight.values())}
        self.restored = {
            place: r for place, r in self.restored.items() if r.packet_id and (r.released or place in here)
        }
        self.put_back &= here
        self.replayed = None
        self.dropped_before = set()

    def _free_packet_id(self) -> int:
        reserved = [record.packet_id for record in self.restored.values()]
        reserved += [] if self.assignments is None else self.assignments.packet_ids()
        packet_id = self._last_packet_id
        for _ in range(MAX_PACKET_ID):
            packet_id = packet_id % MAX_PACKET_ID + 1
            if packet_id not in self.in_flight and packet_id not in reserved and packet_id not in self.kept_packet_ids:
                self._last_packet_id = packet_id
                return packet_id
        raise AssertionError("more messages in flight than packet ids")  # receive_maximum is at most as many


def client_of(spool_key: str) -> str:
    """Whose session a name in the spool is of."""
    return spool_key.rpartition("\0")[0]
