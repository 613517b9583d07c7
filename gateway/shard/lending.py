"""Delivering what share groups have: from a group's queue to one member, and what becomes of it (MQTT 5.0, 4.8.2).

A message is lent to a member only when that has room for it, so nothing waits with a member that others could have.
When a member's connection ends, what it has not acknowledged at QoS 1 goes to another that is there, else it is sent
again to whoever comes first. What was sent at QoS 2 stays with its member, also across a restart: the group's record in
the session log says who has it, before it is sent.
"""

from collections.abc import Callable
from typing import Protocol

from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import Entry, Outcome
from gateway.shard.ready import ReadySessions
from gateway.shard.session import Session
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.share_group import Borrower, Loan, ShareGroup
from mqtt.codes import ReasonCode
from schemas.session_log import KIND_OF_GROUP

_CHUNK = 64
_MOST_CLOSING = 1_000


class GroupQueues(Protocol):
    """What groups need of whoever delivers in a shard (:class:`gateway.shard.delivery.Deliverer`)."""

    def load(self, session: Session) -> None:
        """Begins to load the backlog, unless it is being done."""
        ...

    def wake(self, session: Session) -> None:
        """There may be something to send by the next flush."""
        ...

    def finish(self, entry: Entry, outcome: Outcome) -> None:
        """One recipient is finished with a message."""
        ...

    def is_expired(self, entry: Entry) -> bool:
        """Whether the message's time is over."""
        ...

    def drop_qos0(self, session: Session) -> None:
        """Nobody can be reached: what waits at QoS 0 is not delivered."""
        ...

    def end(self, session: Session) -> None:
        """The session is over, or the group: what it still had to get ends."""
        ...


class LendingHome(Protocol):
    """The home of one shard, as far as groups need it."""

    @property
    def deliverer(self) -> GroupQueues: ...
    @property
    def writer(self) -> SessionLogWriter: ...
    @property
    def spool(self) -> ShardSpool: ...


class Lender:
    """Moves entries of groups: queued → lent → finished; what a finished one means for its message is the business of
    the group's shard. Calls are for sessions that are, or were, members of a group; `home_of` gives the home of a
    shard, for a group and its members may have different ones."""

    def __init__(self, ready: ReadySessions, home_of: Callable[[int], LendingHome]) -> None:
        self._ready = ready
        self._home_of = home_of

    def pump(self, group: ShareGroup) -> None:
        """Lends as much of the queue as members have room for."""
        while group.ready and not group.sending:
            if not group.queue:
                self._of(group).load(group)
                return
            loans = self._take(group)
            if not loans and group.queue:
                return
            if all(loan.is_logged for loan in loans):
                self._send_all(loans)
            else:
                group.sending = True
                self._log(group, lambda loans=loans: self._send_logged(group, loans))  # type: ignore[misc]

    def acknowledged(self, session: Session, packet_id: int) -> None:
        """PUBACK."""
        loan = _loan(session, packet_id)
        if loan is not None and loan.view.qos == 1:
            loan.group.close(loan)
            self._of(loan.group).finish(loan.entry, "delivered")
            self._freed(loan)

    def received(self, session: Session, packet_id: int, reason: int) -> bool:
        """PUBREC: PUBREL follows once that is durable. False if the packet id is not one of a loan."""
        loan = _loan(session, packet_id)
        if loan is None or loan.view.qos != 2:
            return False
        if loan.view.released:
            if loan.may_release and session.link is not None:
                session.link.release(packet_id)
            return True
        loan.view.released = True

        def durable() -> None:
            self._of(loan.group).finish(loan.entry, "delivered")
            loan.may_release = True
            if _loan(session, packet_id) is not loan:
                return
            if reason >= ReasonCode.UNSPECIFIED_ERROR:
                self._settle(loan)
                self._freed(loan)
                self._ready.flush()
            elif session.link is not None:
                session.link.release(packet_id)

        self._log(loan.group, durable)
        return True

    def completed(self, session: Session, packet_id: int) -> None:
        """PUBCOMP."""
        loan = _loan(session, packet_id)
        if loan is not None:
            if loan.may_release:
                self._settle(loan)
                self._freed(loan)
        elif session.borrower is not None and packet_id in session.borrower.recalled:
            group, place = session.borrower.recalled[packet_id]
            if group.recalled[place].record.released:
                group.disown(place)

    def undeliverable(self, session: Session, view: Entry) -> None:
        """What was lent is too large for the member: it counts as sent [MQTT-3.1.2-25]."""
        loan = _loan(session, view.packet_id)
        if loan is not None and loan.view is view:
            self._of(loan.group).finish(loan.entry, "dropped")
            self._settle(loan)
            self._freed(loan)
            self._ready.flush()

    def room(self, session: Session) -> None:
        """A member may take more than before: first what it has already been lent, then what groups have."""
        borrower = session.borrower
        if borrower is None:
            return
        self._send_waiting(session, borrower)
        own_waits = bool(session.queue or session.backlog)
        for group in self.rouse(session, borrower):
            if own_waits and not borrower.own_is_next:  # at the next flush its own queue might be first
                self.pump(group)
        if own_waits:
            self._of(session).wake(session)

    def rouse(self, session: Session, borrower: Borrower) -> set[ShareGroup]:
        """Groups that found no room with a member may find some now."""
        missed, borrower.missed = borrower.missed, set()
        for group in missed:
            if session.client in group.connected:
                group.ready.setdefault(session.client, session)
                self._of(group).wake(group)
        return missed

    # -- members come and go -------------------------------------------------------------------------------------------

    def resume(self, session: Session) -> None:
        """A connection is there: PUBLISH with DUP or PUBREL for what was in flight, then more."""
        borrower, link = session.borrower, session.link
        if borrower is None or link is None:
            return
        for packet_id, (group, place) in borrower.recalled.items():
            if group.recalled[place].record.released:
                link.release(packet_id)
        borrower.on_wire = 0
        for packet_id, loan in borrower.lent.items():
            loan.group.stranded.pop(loan.entry.place, None)
            loan.on_wire = loan.view.released
            if loan.on_wire:
                borrower.on_wire += 1
                if loan.may_release:
                    link.release(packet_id)
        for group in borrower.groups.values():
            self.connect(group, session)
        self.room(session)
        self._ready.flush()

    def connect(self, group: ShareGroup, session: Session) -> None:
        """A member of the group can be reached; what others left behind is for it."""
        group.connected[session.client] = session
        group.ready[session.client] = session
        self._take_back(group, list(group.stranded.values()))
        self._of(group).wake(group)

    def disconnect(self, group: ShareGroup, session: Session) -> None:
        """A member can be reached no more, or is none any more."""
        group.ready.pop(session.client, None)
        if group.connected.pop(session.client, None) is not None and not group.connected:
            self._of(group).drop_qos0(group)
            group.forget_spooled(self._home_of(group.shard).spool.committed_row)

    def lost(self, session: Session) -> None:
        """The connection is gone."""
        borrower = session.borrower
        if borrower is None:
            return
        for group in borrower.groups.values():
            self.disconnect(group, session)
        borrower.on_wire = 0
        returning: dict[ShareGroup, list[Loan]] = {}
        for loan in borrower.lent.values():
            loan.on_wire = False
            if loan.may_return and not loan.group.ended:
                returning.setdefault(loan.group, []).append(loan)
        for group, loans in returning.items():
            if group.connected:
                self._take_back(group, loans)
            else:
                group.stranded |= {loan.entry.place: loan for loan in loans}
        self._ready.flush()

    def end(self, session: Session) -> None:
        """The session is over, and member of no group any more."""
        borrower = session.borrower
        if borrower is None:
            return
        returning: dict[ShareGroup, list[Loan]] = {}
        for loan in list(borrower.lent.values()):
            if loan.may_return and not loan.group.ended:
                returning.setdefault(loan.group, []).append(loan)
                continue
            if not loan.view.released:  # else it is delivered, as soon as that is durable
                self._of(loan.group).finish(loan.entry, "ended")
            self._settle(loan)
        for group, loans in returning.items():
            self._take_back(group, loans)
        for group, place in list(borrower.recalled.values()):
            group.disown(place)
        self._ready.flush()

    def end_group(self, group: ShareGroup) -> None:
        """The last member has left: what waits ends. What members have in hand ends for the group only."""
        group.ended = True
        self._of(group).end(group)
        for loan in list(group.lent.values()):
            self._of(loan.group).finish(loan.entry, "delivered" if loan.view.released else "ended")
        group.stranded.clear()
        if group.in_log:
            self._home_of(group.shard).writer.ended(group, kinds=[KIND_OF_GROUP])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _of(self, session: Session) -> GroupQueues:
        return self._home_of(session.shard).deliverer

    def _take(self, group: ShareGroup) -> list[Loan]:
        """The next loans, in the order of the queue; fewer than `_CHUNK` if nobody has room for more."""
        loans: list[Loan] = []
        while group.queue and len(loans) < _CHUNK:
            entry = group.queue[0]
            recalled = group.recalled.get(entry.place) if group.recalled else None
            if recalled is not None:
                record, owner = recalled
                if owner is not None:
                    loans.append(group.lend_again(entry, record, owner))
                    continue
                del group.recalled[entry.place]
                group.settle(entry)
                self._of(group).finish(group.drop_first(), "ended")
            elif self._of(group).is_expired(entry):
                self._of(group).finish(group.drop_first(), "expired")
            else:
                session = None if group.is_lent_out else group.choose()
                if session is None:
                    break
                loans.append(group.lend(entry, session))
        return loans

    def _send_logged(self, group: ShareGroup, loans: list[Loan]) -> None:
        group.sending = False
        self._send_all(loans)
        self.pump(group)

    def _send_all(self, loans: list[Loan]) -> None:
        for loan in loans:
            loan.may_send = True
            self._send(loan)

    def _send(self, loan: Loan) -> None:
        """Sends what is lent, if it still is; if the member is away, or its window smaller by now, it waits with it."""
        session, view, entry = loan.member, loan.view, loan.entry
        borrower, link = session.borrower, session.link
        if view.qos == 0:
            self._send_qos0(loan)
        elif link is not None and borrower is not None and borrower.lent.get(view.packet_id) is loan:
            if loan.on_wire or borrower.on_wire + len(session.in_flight) >= session.receive_maximum:
                return
            view.dup = view.dup or entry.sent
            loan.on_wire = entry.sent = True
            borrower.on_wire += 1
            link.deliver(entry.held.message, view)

    def _send_qos0(self, loan: Loan) -> None:
        """A member that wants QoS 0 has a message once it is sent."""
        group, entry, link = loan.group, loan.entry, loan.member.link
        if link is None and entry.qos and not group.ended:
            self._take_back(group, [loan])
            return
        group.close(loan)
        if entry.finished:
            return
        taken = link is not None and link.deliver(entry.held.message, loan.view)
        self._of(group).finish(entry, "ended" if link is None else "sent" if taken else "dropped")

    def _send_waiting(self, session: Session, borrower: Borrower) -> None:
        """What the member was lent and is not on its present connection yet, in order."""
        if session.link is None or borrower.on_wire == len(borrower.lent):
            return
        for loan in list(borrower.lent.values()):
            if loan.may_send and not loan.on_wire:
                self._send(loan)

    def _take_back(self, group: ShareGroup, loans: list[Loan]) -> None:
        """Others may get them. What is logged as lent must not stay so, or a crash would leave it to that member."""
        if not loans:
            return
        group.take_back(loans)
        if any(loan.view.qos == 2 for loan in loans):
            self._log(group, _nothing)
        self._of(group).wake(group)

    def _settle(self, loan: Loan) -> None:
        """The exchange is over, and nobody gets the message again."""
        loan.group.close(loan)
        if loan.view.qos == 2:
            loan.group.settle(loan.entry)

    def _freed(self, loan: Loan) -> None:
        """A loan is over: there is room for others."""
        group = loan.group
        self.room(loan.member)
        if group.waits:
            self._of(group).wake(group)
        if len(group.closing) >= _MOST_CLOSING:
            self._log(group, _nothing)

    def _log(self, group: ShareGroup, then: Callable[[], None]) -> None:
        """Runs `then` once the group's record is durable; packet ids that it does not name any more are free then."""
        closing, group.closing = group.closing, []
        group.in_log = group.in_log or not group.ended

        def stored() -> None:
            for borrower, packet_id in closing:
                borrower.ids.discard(packet_id)
            then()

        self._home_of(group.shard).writer.windows(group, stored)


def _loan(session: Session, packet_id: int) -> Loan | None:
    return None if session.borrower is None else session.borrower.lent.get(packet_id)


def _nothing() -> None:
    """Nobody waits for the record."""
