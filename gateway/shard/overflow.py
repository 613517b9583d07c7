"""A session whose queue is full: who gives way, and how that is made to last (docs/protocol.md, Limits).

Only what was never sent may be dropped, one message after the other, oldest first (`drop_oldest`), or the one that has
just come (`drop_newest`, `disconnect`); QoS 0 always gives way itself. What is dropped has the outcome `dropped`.

Contract: in a session that outlives its connection a message has its outcome only when the session log knows it is
dropped; so it does not come back afterwards, whatever crashes. Until then it may still come, and no crash loses it. A
checkpoint settles what was dropped since the last one. Pure: no clock, no I/O.
"""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Protocol

from gateway.shard.messages import Delivery
from gateway.shard.session import Session
from schemas.settings import GatewayLimits

_PAGE_LEAST, _PAGE_MOST = 64, 500
_DROPPING_MOST = 100
"""So many wait for a checkpoint; with more it is time to settle without one."""


class Queues(Protocol):
    """What a full queue needs of whoever delivers."""

    def pump(self, session: Session) -> None:
        """Sends what the client takes now."""
        ...

    def drop(self, delivery: Delivery) -> None:
        """Ends a delivery that has left its queue, with the outcome `dropped`."""
        ...

    def load(self, session: Session, most: int) -> None:
        """Begins to load rows of the session's backlog, unless it is being done; calls `trim` afterwards."""
        ...


class SessionLog(Protocol):
    """Where it is made durable (:class:`gateway.shard.log_writer.SessionLogWriter`)."""

    def windows(self, session: Session, then: Callable[[], None]) -> None:
        """Writes what the session log has to know of a session now; calls `then` once that is durable."""
        ...


class Overflow:
    """`unsettled` are sessions for the next checkpoint; `soon` calls a function in the next round of the loop;
    `too_slow` ends the connection of a session."""

    def __init__(
        self,
        limits: GatewayLimits,
        queues: Queues,
        log: SessionLog,
        unsettled: set[Session],
        soon: Callable[[Callable[[], None]], object],
        too_slow: Callable[[Session], None],
    ) -> None:
        self._unsettled = unsettled
        self._queues = queues
        self._log = log
        self._soon = soon
        self._too_slow = too_slow
        self._most, self._most_bytes, self._choice = limits.queue_messages, limits.queue_bytes, limits.queue_full
        self._leaving: set[Session] = set()
        self._trimming: set[Session] = set()
        self._settling: set[Session] = set()

    def has_capacity(self, session: Session, delivery: Delivery) -> bool:
        """Whether a delivery may be queued: there is room, or others make it. What was sent in an earlier life of the
        home always may."""
        return not self._is_full(session, delivery) or delivery.dup or self._make_room(session, delivery)

    def drop(self, session: Session, delivery: Delivery) -> None:
        """Drops a delivery, which is in no queue."""
        if not (session.persistent and delivery.is_brought_again):
            self._queues.drop(delivery)
            return
        session.note_dropping(delivery)
        self._unsettled.add(session)
        if len(session.dropping) % _DROPPING_MOST == 0:
            self._soon(partial(self.settle, session))

    def _is_full(self, session: Session, delivery: Delivery) -> bool:
        size = session.queued_bytes + delivery.pending.message.size
        return session.queued >= self._most or size > self._most_bytes

    def _make_room(self, session: Session, delivery: Delivery) -> bool:
        """What came with the delivery and is only not sent yet is sent first: a client is not slow because a batch is
        larger than its queue."""
        if session.is_reachable:
            self._queues.pump(session)
            if not self._is_full(session, delivery):
                return True
        if self._choice == "disconnect" and session.link is not None and session not in self._leaving:
            self._leaving.add(session)
            self._soon(partial(self._end_connection, session))  # it changes what messages are being offered to
        if self._choice != "drop_oldest" or not delivery.qos or delivery.pending.message.size > self._most_bytes:
            return False
        while self._is_full(session, delivery):
            if not self._drop_oldest(session, coming=1):
                if not session.backlog:
                    return False  # all that waits was sent before
                self._trimming.add(session)
                self._load_oldest(session)
                return True
        return True

    def trim(self, session: Session) -> None:
        """Drops what is too much since a delivery was let in at the cost of the backlog, whose oldest are here now."""
        if session not in self._trimming:
            return
        while self._is_over(session):
            if not self._drop_oldest(session, coming=0):
                if session.backlog:
                    self._load_oldest(session)
                    return
                break  # the rest was sent before
        self._trimming.discard(session)

    def end(self, session: Session) -> None:
        """The session is over: nothing of it comes back."""
        self._trimming.discard(session)
        deliveries = list(session.dropping.values())
        session.end_dropping(deliveries)
        for delivery in deliveries:
            self._queues.drop(delivery)

    def settle_soon(self, session: Session) -> None:
        """Begins to settle, unless it is being done, and sends what waits for it."""
        if session not in self._settling:
            self._settling.add(session)
            self._soon(partial(self.settle, session, partial(self._settled, session)))

    def settle(self, session: Session, then: Callable[[], None] | None = None) -> None:
        """Makes durable what was dropped so far, and ends it; calls `then` after that."""
        deliveries = list(session.dropping.values())

        def stored() -> None:
            session.end_dropping(deliveries)
            for delivery in deliveries:
                self._queues.drop(delivery)
            if then is not None:
                then()

        self._log.windows(session, stored)

    def _settled(self, session: Session) -> None:
        self._settling.discard(session)
        self._queues.pump(session)

    def _is_over(self, session: Session) -> bool:
        return session.queued > self._most or session.queued_bytes > self._most_bytes

    def _drop_oldest(self, session: Session, coming: int) -> bool:
        """Drops the oldest that was never sent, if it is in memory. What waits behind the backlog is the oldest when
        the whole backlog is to go already, which `coming` messages more have to be reckoned for."""
        messages, n_bytes = session.queued + coming, session.queued_bytes
        over_backlog = messages > self._most + session.backlog or n_bytes > 2 * self._most_bytes
        delivery = session.take_unsent(behind_backlog=over_backlog)
        if delivery is None:
            return False
        self.drop(session, delivery)
        return True

    def _load_oldest(self, session: Session) -> None:
        excess = session.queued - self._most
        if session.queued_bytes > self._most_bytes:
            mean = session.queued_bytes / session.queued
            excess = max(excess, ceil((session.queued_bytes - self._most_bytes) / mean))
        self._queues.load(session, min(max(excess, _PAGE_LEAST), _PAGE_MOST))

    def _end_connection(self, session: Session) -> None:
        self._leaving.discard(session)
        self._too_slow(session)
