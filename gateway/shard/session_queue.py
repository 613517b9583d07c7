"""What waits for a session's client, in memory and in the spool, and what a full queue drops (MQTT 5.0, 4.1; R8).

Pure: no clock, no I/O. Only this file sets the fields of :class:`SessionQueue`, but for `queue`, `put_back` and
`kept_packet_ids`, which :mod:`gateway.shard.session` changes as well: what it takes from here may come back.
"""

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from gateway.shard.messages import Delivery
from gateway.shard.session_life import SessionLife


@dataclass(slots=True, eq=False)
class SessionQueue(SessionLife):
    """`queue` holds deliveries not sent yet. `backlog` counts rows in the spool that are not in memory, behind row
    `loaded_row`; while there are any, new deliveries wait in `tail` so that order is kept. `queued_bytes` are all
    that, by :attr:`Message.size`.

    `put_back` are places of messages that were taken for sending and wait again, here or in the spool;
    `kept_packet_ids` those of deliveries that were sent and wait to be sent again.

    `dropping` are deliveries taken out of a full queue whose end is not durable yet, by place; `dropped` the places of
    all that were, until a checkpoint has seen their end.
    """

    queue: deque[Delivery] = field(default_factory=deque)
    tail: deque[Delivery] = field(default_factory=deque)
    put_back: set[tuple[int, int]] = field(default_factory=set)
    kept_packet_ids: set[int] = field(default_factory=set)
    backlog: int = 0
    loaded_row: int = 0
    loading: bool = False
    queued_bytes: int = 0
    dropping: dict[tuple[int, int], Delivery] = field(default_factory=dict)
    dropped: set[tuple[int, int]] = field(default_factory=set)

    @property
    def queued(self) -> int:
        """Messages waiting, in memory and in the spool."""
        return len(self.queue) + len(self.tail) + self.backlog

    def enqueue(self, delivery: Delivery) -> None:
        (self.tail if self.backlog or self.tail else self.queue).append(delivery)
        self.queued_bytes += delivery.pending.message.size

    def remove(self, delivery: Delivery) -> None:
        """Takes a delivery that waits out of the queue."""
        for waiting in (self.queue, self.tail):
            if waiting and waiting[0] is delivery:  # as it mostly is: the others need not be looked at
                waiting.popleft()
                self.queued_bytes -= delivery.pending.message.size
                return
        for waiting in (self.queue, self.tail):
            if delivery in waiting:
                waiting.remove(delivery)
                self.queued_bytes -= delivery.pending.message.size

    def take_out(self, delivery: Delivery) -> None:
        """A delivery that waits in memory is over, or is counted as sent."""
        self.remove(delivery)
        self.put_back.discard(delivery.place)

    def take_unsent(self, *, behind_backlog: bool) -> Delivery | None:
        """Takes the oldest delivery that was never sent out of the queue, to be dropped; None if there is none before
        the backlog. `behind_backlog`: or behind it."""
        for waiting in (self.queue, self.tail) if behind_backlog else (self.queue,):
            for position, delivery in enumerate(waiting):
                if _is_unsent(delivery):
                    del waiting[position]
                    self.queued_bytes -= delivery.pending.message.size
                    self.put_back.discard(delivery.place)
                    return delivery
        return None

    def take_unsent_rows(self, rows: Container[int | None]) -> list[Delivery]:
        """Takes what waits in memory, was never sent, and is in one of these rows of the spool out of the queue."""
        return self._take_all(lambda delivery: delivery.row in rows and _is_unsent(delivery))

    def remove_qos0(self) -> list[Delivery]:
        """Takes what waits at QoS 0 out of the queue."""
        return self._take_all(lambda delivery: not delivery.qos)

    def _take_all(self, is_wanted: Callable[[Delivery], bool]) -> list[Delivery]:
        taken = [delivery for delivery in (*self.queue, *self.tail) if is_wanted(delivery)]
        if taken:
            gone = set(taken)
            self.queue = deque(delivery for delivery in self.queue if delivery not in gone)
            self.tail = deque(delivery for delivery in self.tail if delivery not in gone)
            self.queued_bytes -= sum(delivery.pending.message.size for delivery in taken)
            self.put_back.difference_update([delivery.place for delivery in taken])
        return taken

    # -- the backlog ---------------------------------------------------------------------------------------------------

    def recover_backlog(self, rows: int, size: int) -> None:
        """The spool has as many rows, with as many bytes."""
        self.backlog, self.queued_bytes = rows, size

    def begin_loading(self) -> bool:
        """Whether rows of the backlog are to be loaded now: there are any, and it is not being done."""
        may_load = bool(self.backlog) and not self.loading
        self.loading = self.loading or may_load
        return may_load

    def end_loading(self) -> None:
        """They are here."""
        self.loading = False

    def load(self, delivery: Delivery) -> None:
        """A delivery of the backlog waits in memory from now on."""
        self.backlog -= 1
        self.queue.append(delivery)

    def leave_backlog(self, delivery: Delivery) -> None:
        """A delivery of the backlog is over."""
        self.backlog -= 1
        self.queued_bytes -= delivery.pending.message.size
        self.put_back.discard(delivery.place)

    def looked_at(self, row: int) -> None:
        """The backlog was read up to a row."""
        self.loaded_row = row

    def has_no_backlog(self) -> None:
        """The spool has no more rows."""
        self.backlog = 0

    def join_tail(self) -> None:
        """Lets what waited behind the spool move up once nothing is left there."""
        if not self.backlog:
            self.queue.extend(self.tail)
            self.tail.clear()
            self.queued_bytes = sum(delivery.pending.message.size for delivery in self.queue)

    def forget_spooled(self, committed_row: int) -> None:
        """Drops from memory what waits and is in the spool too, up to `committed_row`; the rest waits behind it.

        What has a packet id of its own stays, at the head. Only an unbroken run is dropped, so that order is kept.
        """
        waiting, in_queue = [*self.queue, *self.tail], len(self.queue)
        kept = self.kept_packet_ids
        spooled = [e.row is not None and e.row <= committed_row and e.packet_id not in kept for e in waiting]
        first = spooled.index(True) if True in spooled else len(waiting)
        last = spooled.index(False, first) if False in spooled[first:] else len(waiting)
        rows = [delivery.row for delivery in waiting[first:last] if delivery.row is not None]
        if not rows or first > in_queue or (self.backlog and last < in_queue):
            return
        self.loaded_row = min(self.loaded_row, rows[0] - 1) if self.backlog else rows[0] - 1
        self.backlog += len(rows)
        self.queue = deque(waiting[:first])
        self.tail = deque(waiting[last:])

    # -- what a full queue drops ---------------------------------------------------------------------------------------

    def note_dropping(self, delivery: Delivery) -> None:
        """A delivery that has left the queue is to be dropped."""
        self.dropping[delivery.place] = delivery
        self.dropped.add(delivery.place)

    def end_dropping(self, deliveries: list[Delivery]) -> None:
        """The session log knows that they are dropped, or the session is over."""
        for delivery in deliveries:
            self.dropping.pop(delivery.place, None)

    def forget_dropped(self, places: set[tuple[int, int]]) -> None:
        """Nothing brings those again."""
        self.dropped -= places


def _is_unsent(delivery: Delivery) -> bool:
    """Whether its client was never sent it."""
    return not (delivery.sent or delivery.dup or delivery.packet_id)
