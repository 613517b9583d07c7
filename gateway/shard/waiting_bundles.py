"""Bundles that wait in the sessions of one shard: read for carriers, and ended by recipients' receipts (M15, M21).

*Reading* changes nothing. It goes by the rows of the spool, in their order, whether a row is in memory too or not: rows
are numbered in the order of the session's messages, and no number is given twice, also over restarts. So the number of
a row is all that a reader needs to go on later. What has waited for less than `gateway.spool_after_s` is not there yet,
and is found the next time.

*A receipt* says what the client's acknowledgement would say: the recipient has the message. What was never sent leaves
the queue, with the outcome `delivered`. What was sent at QoS 2 and not answered keeps its packet id, as after PUBREC:
the client may hold the id, and another message under it would be lost. When the client comes back it gets PUBREL, and
answers PUBCOMP, whether it knows the id or not (MQTT 5.0, 4.3.3, 3.7.2.1). While the client is connected, what it has
in hand is left to its own answer.

Contract: after a crash an end that was reported stays. It is reported once a checkpoint has it, which one request
waits for at most once. Without a checkpoint the row may come back; then the client gets the message again, and its own
memory discards it.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import Delivery, Message, Outcome
from gateway.shard.operations import Operations
from gateway.shard.session import Session
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.spool import SpooledDelivery
from mqtt.codes import ReasonCode

PAGE: Final = 16
SCAN: Final = 500
"""Bundles that are loaded at a time, and rows that are looked at for them."""

_LOOKS: Final = 3


class WaitingPage(NamedTuple):
    """Messages that came in bundles, with their rows, oldest first; up to which row was looked at, and whether that was
    all."""

    messages: list[tuple[int, Message]]
    read_to: int
    is_last: bool


class Ended(NamedTuple):
    """Ids of messages whose share is over now for good, and of those for which it is to be tried again."""

    ended: frozenset[str]
    later: frozenset[str]


NOTHING: Final = Ended(frozenset(), frozenset())


class Deliveries(Protocol):
    """What is needed of whoever delivers (:class:`gateway.shard.delivery.Deliverer`)."""

    def finish(self, delivery: Delivery, outcome: Outcome) -> None:
        """One recipient is finished with a message."""
        ...

    def received(self, session: Session, packet_id: int, reason: int) -> None:
        """As after PUBREC."""
        ...


class WaitingBundles:
    """Of one shard. `cover` returns after a checkpoint that began later; `clock` gives seconds since the epoch."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
        spool: ShardSpool,
        deliveries: Deliveries,
        writer: SessionLogWriter,
        operations: Operations,
        cover: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._sessions = sessions
        self._spool = spool
        self._deliveries = deliveries
        self._writer = writer
        self._operations = operations
        self._cover = cover
        self._clock = clock

    async def page(self, client: str, after_row: int) -> WaitingPage:
        """Some of what waits behind a row for a client that is not connected. Raises SpoolError, NotAdmitted."""
        async with self._operations:
            session = self._sessions.get(client)
            if session is None or not _is_away(session):
                return WaitingPage([], after_row, True)
            rows, read_to = await self._spool.bundle_rows(session.spool_key, after_row, PAGE, SCAN)
            if not _is_away(session):
                return WaitingPage([], after_row, True)
            now = self._clock()
            waiting = [(s.row, s.message) for s in rows if not self._spool.is_gone(s.row) and _is_alive(s.message, now)]
            return WaitingPage(waiting, read_to, read_to == after_row)

    async def end(self, client: str, ids: frozenset[str], is_settled: Callable[[Message], bool]) -> Ended:
        """The client has these messages, says its receipt: its share of those that came in bundles, and for which
        `is_settled`, is over. Raises SpoolError, NotAdmitted."""
        async with self._operations:
            session = self._sessions.get(client)
            if session is None or session.is_group:
                return NOTHING
            over, later, all_ids = set[str](), set[str](), [*ids]
            for start in range(0, len(all_ids), PAGE):  # messages may be large
                ended = await self._end(session, frozenset(all_ids[start : start + PAGE]), is_settled)
                over |= ended.ended
                later |= ended.later
            if over:
                if session.persistent:
                    await self._writer.durable(partial(self._writer.windows, session))
                await self._cover()
            if not self._spool.outage.is_writing:
                over, later = set(), later | over
            return Ended(frozenset(over), frozenset(later))

    async def _end(self, session: Session, ids: frozenset[str], is_settled: Callable[[Message], bool]) -> Ended:
        """Ends what can be ended; nothing is durable yet."""
        for _ in range(_LOOKS):
            committed_row = self._spool.committed_row
            rows = await self._spool.rows_of_bundles(session.spool_key, [*ids])
            if session.ended:
                break
            if session.link is None and session.disconnected_ms is None:
                return Ended(frozenset(), ids)  # its client comes: it must not get PUBREL before the log has that
            over, later = set[str](), set[str]()  # nobody else has a turn from here on
            found = [e for e in _in_memory(session) if e.pending.message.id in ids and is_settled(e.pending.message)]
            for delivery in found:
                if self._end_in_memory(session, delivery):
                    over.add(delivery.pending.message.id)
                else:
                    later.add(delivery.pending.message.id)
            here = {delivery.row for delivery in found}
            for spooled in rows:
                if spooled.row not in here and is_settled(spooled.message) and self._end_in_spool(session, spooled):
                    over.add(spooled.message.id)
            if over or later or committed_row == self._spool.committed_row:  # else one may have moved meanwhile
                return Ended(frozenset(over - later), frozenset(later))
        return NOTHING

    def _end_in_memory(self, session: Session, delivery: Delivery) -> bool:
        """False if it cannot be said now: a connected client answers itself; what is taken for sending goes back to the
        queue."""
        is_in_hand = session.has_in_hand(delivery)
        if not (is_in_hand or delivery.packet_id):
            session.take_out(delivery)
            self._deliveries.finish(delivery, "delivered")
            return True
        if delivery.qos != 2 or (is_in_hand and (session.link is not None or not (delivery.sent or delivery.dup))):
            return False
        if not is_in_hand:
            session.take_out(delivery)
            session.take_as_sent(delivery)
        self._deliveries.received(session, delivery.packet_id, ReasonCode.SUCCESS)
        return True

    def _end_in_spool(self, session: Session, spooled: SpooledDelivery) -> bool:
        """False if it is over already."""
        if self._spool.is_gone(spooled.row) or spooled.row <= session.loaded_row or not session.backlog:
            return False
        if spooled.row in session.rows_in_memory():
            return False  # it is being dropped
        delivery = self._spool.delivery_of(spooled, self._clock())
        was_over = session.settled_before is not None and not session.restore(delivery)
        session.leave_backlog(delivery)
        if was_over:
            self._deliveries.finish(delivery, session.earlier_outcome(delivery))
        elif delivery.packet_id:
            session.take_as_sent(delivery)
            self._deliveries.received(session, delivery.packet_id, ReasonCode.SUCCESS)
        else:
            self._deliveries.finish(delivery, "delivered")
        session.join_tail()
        return True


def _is_away(session: Session) -> bool:
    return session.link is None and session.persistent and not (session.ended or session.is_group)


def _is_alive(message: Message, now: float) -> bool:
    return message.expires is None or message.expires > now * 1000


def _in_memory(session: Session) -> Iterator[Delivery]:
    """What is not finished and came in a bundle, but for what a share group has assigned."""
    waiting: Iterable[Delivery] = (*session.queue, *session.tail, *session.in_flight.values())
    for delivery in waiting:
        if delivery.pending.message.bundle is not None and not (delivery.finished or delivery.assigned):
            yield delivery
