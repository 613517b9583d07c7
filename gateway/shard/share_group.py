"""Share groups (MQTT 5.0, 4.8.2; R6): subscriptions of several sessions that get each message once among them.

A group is a session without a connection: it has a queue, a place in the spool and a record in the session log, in the
shard of its own name. What it has to deliver it lends to a member, when that member has room. Pure: no clock, no I/O.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from gateway.shard.cursor import SettledCursor
from gateway.shard.messages import Entry
from gateway.shard.session import MAX_PACKET_ID, OWN_PACKET_IDS, Session
from gateway.shard.subscription import SessionSubscription
from schemas.session_log import GroupRecord, LentRecord, SubscriptionRecord

GROUP_MARK = "\0"
"""Before the name of a group where names of sessions stand: no client id has it [MQTT-1.5.4-2]."""

RECORD_BYTES = 512 * 1024
"""A group lends no more at QoS 2 once its record in the session log is about as large."""

_BYTES_PER_LOAN = 120

Place = tuple[int, int]


class Member(NamedTuple):
    session: Session
    record: SubscriptionRecord


class Loan(msgspec.Struct, eq=False):
    """A message of a group in the hands of a member. `view` is what the member's connection sees of `entry`: with the
    packet id, QoS and subscription identifier of its own.

    `may_send` once the record that it waits for, or one lent before it, is durable; `on_wire` if it was sent on the
    member's present connection; `may_release` once the member's PUBREC is durable.
    """

    group: "ShareGroup"
    member: Session
    entry: Entry
    view: Entry
    may_send: bool = False
    on_wire: bool = False
    may_release: bool = False

    @property
    def may_return(self) -> bool:
        """Whether another member may get it instead: not what was sent at QoS 2 [MQTT-4.8.2-4], [MQTT-4.8.2-5]."""
        return self.view.qos < 2 or not self.entry.sent

    @property
    def is_logged(self) -> bool:
        """Whether it can be sent without a new record in the session log: an earlier life of the home wrote it."""
        return self.view.qos < 2 or self.view.dup


class Borrower:
    """A session as a member of groups. `lent` are its loans by packet id, `ids` all its packet ids that are taken, also
    by loans of an earlier life of the home that have not come again: `recalled`. `missed` are groups that found no room
    with it.

    Loans have packet ids of their own range: a group's record and the session's own are not written together, so that
    after a crash one may name an id that the other has used since. `on_wire` counts loans sent on the present
    connection.
    """

    def __init__(self, client: str) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self.lent: dict[int, Loan] = {}
        self.ids: set[int] = set()
        self.recalled: dict[int, tuple[ShareGroup, Place]] = {}
        self.missed: set[ShareGroup] = set()
        self.record_bytes = _BYTES_PER_LOAN + len(msgspec.json.encode(client))
        self.own_is_next = False
        self.on_wire = 0
        self._last_id = OWN_PACKET_IDS

    def new_id(self) -> int:
        """A packet id of the loans' range; there is one, see `has_room`."""
        packet_id = self._last_id
        while True:
            packet_id = packet_id + 1 if packet_id < MAX_PACKET_ID else OWN_PACKET_IDS + 1
            if packet_id not in self.ids:
                self.ids.add(packet_id)
                self._last_id = packet_id
                return packet_id


def borrower_of(session: Session) -> Borrower:
    if session.borrower is None:
        session.borrower = Borrower(session.client)
    return session.borrower


def has_room(session: Session) -> bool:
    """Whether a member takes one more loan now. While its own queue waits too they take turns, and half of the window
    is open to either (R9)."""
    link, borrower = session.link, session.borrower
    if link is None or borrower is None or not link.writable or session.is_window_full:
        return False
    if len(borrower.ids) >= MAX_PACKET_ID - OWN_PACKET_IDS:
        return False
    own_waits = session.queue or session.backlog
    return not own_waits or not borrower.own_is_next or len(borrower.lent) < session.receive_maximum // 2


class Recalled(NamedTuple):
    """A loan that an earlier life of the home has logged; `session` None if that of the member is over."""

    record: LentRecord
    session: Session | None


class ShareGroup(Session):
    """The sessions that share the subscription `name`, `$share/<share name>/<filter>`.

    `connected` are members that can be reached, `ready` those of them that may have room, in turn. `lent` are loans by
    place; `stranded` those whose member is away while no other is there. `recalled` are loans of before a restart, by
    place. `closing` are packet ids whose exchange is over but that a record on Kafka may still name.
    """

    is_group = True

    def __init__(self, name: str, shard: int, since: int, born_us: int, most_lent: int) -> None:
        super().__init__(GROUP_MARK + name, shard, since, born_us)
        self.name = name
        self.members: dict[str, Member] = {}
        self.connected: dict[str, Session] = {}
        self.ready: dict[str, Session] = {}
        self.lent: dict[Place, Loan] = {}
        self.stranded: dict[Place, Loan] = {}
        self.recalled: dict[Place, Recalled] = {}
        self.closing: list[tuple[Borrower, int]] = []
        self._most_lent = most_lent
        self._record_bytes = 0

    @property
    def persistent(self) -> bool:
        """It is written to the session log, and its direct deliveries are kept, for as long as it has a member."""
        return True

    @property
    def is_reachable(self) -> bool:
        return bool(self.connected)

    @property
    def is_recovering(self) -> bool:
        return self.replayed is not None or bool(self.recalled)

    @property
    def waits(self) -> bool:
        """Whether it has anything to lend."""
        return bool(self.queue or self.backlog)

    @property
    def subscription(self) -> SessionSubscription:
        """The one subscription of all members, as the shard matches it; its QoS is the highest of theirs."""
        [subscription] = self.subscriptions.values()
        return subscription

    @property
    def highest_qos(self) -> int:
        return max(member.record.qos for member in self.members.values())

    @property
    def is_lent_out(self) -> bool:
        return len(self.lent) >= self._most_lent or self._record_bytes >= RECORD_BYTES

    # -- lending -------------------------------------------------------------------------------------------------------

    def choose(self) -> Session | None:
        """The next member with room, in turn; None if none has: who gets room later is put into `ready` again."""
        while self.ready:
            client, session = next(iter(self.ready.items()))
            del self.ready[client]
            if has_room(session):
                self.ready[client] = session
                return session
            borrower_of(session).missed.add(self)
        return None

    def lend(self, entry: Entry, session: Session) -> Loan:
        """Gives the first entry of the queue to a member that has room, by that member's own subscription."""
        message, record = entry.held.message, self.members[session.client].record
        qos, retain = min(message.qos, record.qos), message.retain and record.retain_as_published
        identifiers = () if record.identifier is None else (record.identifier,)
        borrower = borrower_of(session)
        packet_id = borrower.new_id() if qos else 0
        borrower.own_is_next = True
        view = Entry(session.client, entry.held, qos, retain, identifiers, packet_id, finished=True)
        return self._note(Loan(self, session, entry, view), borrower)

    def lend_again(self, entry: Entry, record: LentRecord, session: Session) -> Loan:
        """Gives the first entry of the queue to the member that had it before a restart."""
        del self.recalled[entry.place]
        borrower = borrower_of(session)
        borrower.recalled.pop(record.packet_id, None)
        subscribed = self.members.get(session.client)
        identifier = None if subscribed is None else subscribed.record.identifier
        identifiers = () if identifier is None else (identifier,)
        retain = subscribed is not None and subscribed.record.retain_as_published and entry.held.message.retain
        view = Entry(session.client, entry.held, 2, retain, identifiers, record.packet_id, dup=True, finished=True)
        entry.sent = True
        return self._note(Loan(self, session, entry, view), borrower)

    def _note(self, loan: Loan, borrower: Borrower) -> Loan:
        entry, view = loan.entry, loan.view
        self.queue.popleft()
        self.queued_bytes -= len(entry.held.message.payload)
        self.put_back.discard(entry.place)
        entry.lent = view
        self.lent[entry.place] = loan
        if view.qos:
            borrower.lent[view.packet_id] = loan
        if view.qos == 2:
            self._record_bytes += borrower.record_bytes
        return loan

    def close(self, loan: Loan) -> None:
        """The loan is over; at QoS 2 its packet id is free once a record without it is durable: `closing`."""
        place = loan.entry.place
        self.stranded.pop(place, None)
        borrower, view = borrower_of(loan.member), loan.view
        if loan.on_wire:
            loan.on_wire = False
            borrower.on_wire -= 1
        if self.lent.get(place) is loan:
            del self.lent[place]
            if view.qos == 2:
                self._record_bytes -= borrower.record_bytes
        if borrower.lent.get(view.packet_id) is loan:
            del borrower.lent[view.packet_id]
            if view.qos == 2:
                self.closing.append((borrower, view.packet_id))
            else:
                borrower.ids.discard(view.packet_id)

    def take_back(self, loans: Iterable[Loan]) -> None:
        """Loans that another member may get wait again, in the order in which their messages were offered."""
        returned = []
        for loan in loans:
            entry = loan.entry
            self.close(loan)
            if entry.finished:
                continue
            entry.lent, entry.sent, entry.dup = None, False, False
            self.put_back.add(entry.place)
            self.queued_bytes += len(entry.held.message.payload)
            returned.append(entry)
        if not returned:
            return
        last = max(_order(entry) for entry in returned)
        while self.queue and _order(self.queue[0]) < last:
            returned.append(self.queue.popleft())
        returned.sort(key=_order)
        self.queue.extendleft(reversed(returned))

    def drop_first(self) -> Entry:
        """Takes the first entry out of the queue, for it is lent to nobody."""
        entry = self.queue.popleft()
        self.queued_bytes -= len(entry.held.message.payload)
        self.put_back.discard(entry.place)
        return entry

    # -- what is durable, and a restart --------------------------------------------------------------------------------

    def logged_windows(self) -> GroupRecord:
        lent = [
            LentRecord(
                loan.view.packet_id, *place, loan.view.released, client=loan.member.client, born_us=loan.member.born_us
            )
            for place, loan in self.lent.items()
            if loan.view.qos == 2
        ]
        lent += [recalled.record for recalled in self.recalled.values()]
        in_hand = {p for p, loan in self.lent.items() if loan.view.qos < 2 and self.settled.covers(loan.entry)}
        dropped = sorted(self.dropped | self.dropped_before)
        return GroupRecord(lent, self.settled.record(), sorted(in_hand | self.put_back), dropped, self.born_us)

    def recover_loans(self, record: GroupRecord, find: Callable[[str], Session | None]) -> None:
        """Takes up what an earlier life of the home has written of this group; `find` gives the session of a client."""
        self.in_log = True
        if record.born_us != self.born_us:
            return
        self.settled, self.replayed = SettledCursor(record.settled), SettledCursor(record.settled)
        self.put_back, self.dropped_before = set(record.open), set(record.dropped)
        for lent in record.lent:
            session, place = find(lent.client), (lent.partition, lent.offset)
            if not lent.packet_id or session is None or session.born_us != lent.born_us:
                self.recalled[place] = Recalled(_nobodys(lent), None)
                continue
            borrower = borrower_of(session)
            borrower.ids.add(lent.packet_id)
            borrower.recalled[lent.packet_id] = (self, place)
            self.recalled[place] = Recalled(lent, session)

    def disown(self, place: Place) -> None:
        """The exchange that was open before a restart is over, or its session is: nobody else gets the message."""
        record, session = self.recalled[place]
        if session is None:
            return
        self.recalled[place] = Recalled(_nobodys(record), None)
        borrower = borrower_of(session)
        if borrower.recalled.pop(record.packet_id, None) is not None:
            self.closing.append((borrower, record.packet_id))

    def restore(self, entry: Entry) -> bool:
        if self.replayed is None:
            return True
        if entry.place in self.dropped_before:
            return False
        recalled = self.recalled.get(entry.place)
        if recalled is None:
            return entry.place in self.put_back or not self.replayed.covers(entry)
        record = recalled.record
        if record.released:
            entry.lent = Entry(record.client, entry.held, 2, False, (), finished=True)
            return False
        entry.dup = True
        return True

    def may_be_known(self, place: Place, row: int) -> bool:
        return place in self.recalled or (self.replayed is not None and self.replayed.covers_row(row))

    def forget_restored(self) -> None:
        here = {entry.place for entry in (*self.queue, *self.tail)} | set(self.lent)
        for place, (record, session) in list(self.recalled.items()):
            if place in here or (session is not None and record.released):
                continue
            self.disown(place)
            del self.recalled[place]
        self.put_back &= here
        self.replayed, self.dropped_before = None, set()

    def settle(self, entry: Entry) -> None:
        self.settled.note(entry)

    def forget_spooled(self, committed_row: int) -> None:
        if not self.connected:
            super().forget_spooled(committed_row)

    def rows_in_memory(self) -> set[int]:
        lent = {loan.entry.row for loan in self.lent.values() if loan.entry.row is not None}
        return super().rows_in_memory() | lent


def _order(entry: Entry) -> tuple[bool, int]:
    """Where an entry stands among those of its group: what has a row in the spool was offered before what has none."""
    return (True, entry.held.number) if entry.row is None else (False, entry.row)


def _nobodys(record: LentRecord) -> LentRecord:
    return msgspec.structs.replace(record, packet_id=0)
