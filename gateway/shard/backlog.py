"""What the spool holds for the sessions of a shard: loaded when there is room for it, ended with its session (G9)."""

from collections.abc import Callable, Container, Coroutine, Mapping
from typing import Any, Protocol

import structlog

from gateway.shard.messages import Delivery, Outcome
from gateway.shard.session import Session
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.spool import SpooledDelivery

_PAGE = 500

log = structlog.get_logger(__name__)


class Queues(Protocol):
    """What a backlog needs of whoever delivers."""

    def finish(self, delivery: Delivery, outcome: Outcome) -> None:
        """One recipient is finished with a message."""
        ...

    def loaded(self, session: Session) -> None:
        """The session's queue has got more."""
        ...


class Backlog:
    """`clock` gives seconds since the epoch; `spawn` starts a coroutine whose failure is fatal."""

    def __init__(
        self,
        spool: ShardSpool,
        queues: Queues,
        clock: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._spool = spool
        self._queues = queues
        self._clock = clock
        self._spawn = spawn

    def load(self, session: Session, most: int = _PAGE) -> None:
        """Begins to load up to `most` rows of the session's backlog, unless it is being done."""
        if session.begin_loading():
            self._spawn(self._load(session, most))

    def end(self, session: Session) -> None:
        """The session is over, and all that it still had to get; not what a share group has assigned."""
        if session.backlog:
            session.recover_backlog(0, 0)
            self._spawn(self.end_rows(session.spool_key, session.rows_in_memory))

    async def end_rows(self, spool_key: str, kept: Callable[[], Container[int]] = tuple) -> None:
        """Ends what the spool holds by now for a session that is gone, but for rows that are `kept`. A share group may
        begin again meanwhile, and get others."""
        row, last = 0, self._spool.last_row
        while row < last and (page := await self._spool.load(spool_key, row, _PAGE)):
            kept_rows = kept()
            for spooled in page:
                if spooled.row > last:
                    return
                if not self._spool.is_gone(spooled.row) and spooled.row not in kept_rows:
                    self._queues.finish(self._spool.delivery_of(spooled, self._clock()), "ended")
            row = page[-1].row

    def expire(self, session: Session, rows: Mapping[int, SpooledDelivery]) -> None:
        """The time of these messages is over, by row: those that wait, here or in memory, and were never sent, make
        room in the queue."""
        in_memory, now = session.rows_in_memory(), self._clock()
        for row, spooled in rows.items():
            if row not in in_memory and not self._spool.is_gone(row):
                delivery = self._spool.delivery_of(spooled, now)
                session.leave_backlog(delivery)
                self._queues.finish(delivery, "expired")
        if not session.is_group:  # a group looks at what is next
            for delivery in session.take_unsent_rows(rows):
                self._queues.finish(delivery, "expired")
        session.join_tail()

    async def _load(self, session: Session, most: int) -> None:
        start = session.loaded_row
        page = await self._spool.load(session.spool_key, start, most)
        session.end_loading()
        if session.ended:
            return
        if session.loaded_row == start:  # else more was dropped from memory meanwhile, and must come first
            self._take(session, page)
        self._queues.loaded(session)

    def _take(self, session: Session, page: list[SpooledDelivery]) -> None:
        now = self._clock()
        in_memory = session.rows_in_memory()
        for spooled in page:
            session.looked_at(spooled.row)
            if spooled.row in in_memory or self._spool.is_gone(spooled.row):
                continue
            delivery = self._spool.delivery_of(spooled, now)
            if session.settled_before is not None and not session.restore(delivery):
                session.leave_backlog(delivery)
                self._queues.finish(delivery, session.earlier_outcome(delivery))
                continue
            if session.in_hand is not None and session.take_in_hand(delivery):
                session.leave_backlog(delivery)
                continue
            delivery.mark_repeated(session.sent_to_ms, now)
            session.load(delivery)
        if not page and session.backlog:
            log.warning("backlog count of the spool corrected", client=session.client, rows=session.backlog)
            session.has_no_backlog()
        session.join_tail()
