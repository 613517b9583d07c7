"""The durable state of a client across connections: subscriptions, queue, and both windows (MQTT 5.0, 4.1; G8, G9).

Pure: no clock, no I/O. The home performs what the methods return.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.home.messages import Entry, Message
from gateway.mqtt.codes import ReasonCode
from schemas.session_log import OutgoingRecord, SessionOpened, Subscribed, SubscriptionRecord, WillRecord, WindowRecord

MAX_PACKET_ID = 65_535


class Link(Protocol):
    """A host's end of a session: how the home reaches the client. Calls never fail; a dead link ignores them."""

    @property
    def writable(self) -> bool:
        """Whether the connection takes more deliveries now; the host calls `Home.resume` when it does again."""
        ...

    def deliver(self, message: Message, entry: Entry) -> None:
        """Sends PUBLISH."""
        ...

    def release(self, packet_id: int) -> None:
        """Sends PUBREL."""
        ...

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        """Sends PUBACK or PUBREC for the client's PUBLISH; nothing at QoS 0."""
        ...

    def complete(self, packet_id: int, reason: ReasonCode) -> None:
        """Sends PUBCOMP."""
        ...

    def disconnect(self, reason: ReasonCode) -> None:
        """Ends the connection; the host need not detach."""
        ...


class SessionSubscription(msgspec.Struct):
    """A subscription of a session; the fields are those of :class:`schemas.session_log.SubscriptionRecord`."""

    client: str
    record: SubscriptionRecord

    @property
    def filter(self) -> str:
        return self.record.filter


class Session:
    """One client's session. `queue` holds entries not sent yet, `in_flight` those sent and not finished, by packet id.

    `backlog` counts rows in the spool that are not in memory; while there are any, new entries wait in `tail` so that
    order is kept. `persistent` sessions outlive their connection and are written to the session log.
    """

    def __init__(self, client: str, shard: int, since: int) -> None:
        self.client = client
        self.shard = shard
        self.since = since
        self.expiry_s = 0
        self.disconnected_ms: int | None = None
        self.will: WillRecord | None = None
        self.link: Link | None = None
        self.epoch = 0
        self.events = 0
        self.subscriptions: dict[str, SessionSubscription] = {}
        self.queue: deque[Entry] = deque()
        self.tail: deque[Entry] = deque()
        self.in_flight: dict[int, Entry] = {}
        self.restored: dict[tuple[int, int], OutgoingRecord] = {}
        self.settled: dict[tuple[int, int], tuple[int, int | None]] = {}
        self.received: set[int] = set()
        self.publishing: set[int] = set()
        self.received_until = -1
        self.inbound_dirty = False
        self.receive_maximum = MAX_PACKET_ID
        self.backlog = 0
        self.loaded_row = 0
        self.loading = False
        self.queued_bytes = 0
        self.retained_sent: dict[str, float] = {}
        self.in_log = False
        self.logging = False
        self.after_log: list[Callable[[], None]] = []
        self.sending = False
        self._last_packet_id = 0

    @property
    def persistent(self) -> bool:
        return self.expiry_s > 0

    @property
    def logged(self) -> bool:
        """Whether the session log holds it: it outlives its connection, or has a will to be published after a crash."""
        return self.persistent or self.will is not None

    @property
    def queued(self) -> int:
        """Messages waiting, in memory and in the spool."""
        return len(self.queue) + len(self.tail) + self.backlog

    def enqueue(self, entry: Entry) -> None:
        (self.tail if self.backlog or self.tail else self.queue).append(entry)
        self.queued_bytes += len(entry.held.message.payload)

    def take(self, most: int) -> list[Entry]:
        """Up to `most` entries that may be sent now, oldest first, with packet ids; in flight afterwards (QoS > 0)."""
        taken: list[Entry] = []
        queue, in_flight = self.queue, self.in_flight
        while queue and len(taken) < most:
            entry = queue[0]
            if entry.qos:
                if len(in_flight) >= self.receive_maximum:
                    break
                if not entry.packet_id:
                    entry.packet_id = self._free_packet_id()
                in_flight[entry.packet_id] = entry
            queue.popleft()
            self.queued_bytes -= len(entry.held.message.payload)
            taken.append(entry)
        return taken

    def restore(self, entry: Entry) -> bool:
        """Gives an entry that a recovery brings again its place from before; False if it is finished (QoS 2)."""
        message = entry.held.message
        record = self.restored.get((message.partition, message.offset))
        if record is None:
            return True
        if record.released:
            return False
        entry.packet_id, entry.dup = record.packet_id, True
        return True

    def resend(self) -> list[Entry]:
        """What was sent on an earlier connection and is not finished, in order: PUBREL is due for those `released`, else
        PUBLISH with DUP. What the client's window no longer takes goes back to the head of the queue."""
        again = [entry for entry in self.in_flight.values() if entry.sent]
        for entry in again:
            entry.dup = True
        fitting = [entry for entry in again if entry.released]
        waiting = [entry for entry in again if not entry.released]
        room = max(0, self.receive_maximum - len(fitting))
        self.requeue(waiting[room:])
        return fitting + waiting[:room]

    def requeue(self, entries: list[Entry]) -> None:
        """Puts entries that were taken back at the head of the queue, in their order; those sent keep their packet id."""
        for entry in reversed(entries):
            self.in_flight.pop(entry.packet_id, None)
            if not entry.dup:
                entry.packet_id = 0
            self.queue.appendleft(entry)
            self.queued_bytes += len(entry.held.message.payload)

    def forget_spooled(self) -> None:
        """Drops from memory what waits and is in the spool too; the rest waits behind it."""
        waiting = [*self.queue, *self.tail]
        rows = [entry.row for entry in waiting if entry.row is not None]
        if not rows:
            return
        self.loaded_row = min(self.loaded_row, min(rows) - 1) if self.backlog else min(rows) - 1
        self.backlog += len(rows)
        self.queue.clear()
        self.tail = deque(entry for entry in waiting if entry.row is None)

    def rows_in_memory(self) -> set[int]:
        waiting = (*self.queue, *self.tail, *self.in_flight.values())
        return {entry.row for entry in waiting if entry.row is not None}

    def settle(self, entry: Entry) -> None:
        """Remembers a finished QoS 2 message until the queue can no longer bring it again."""
        message = entry.held.message
        self.settled[message.partition, message.offset] = (entry.held.position, entry.row)

    def window_record(self) -> WindowRecord:
        """The durable part of both windows, now."""
        outgoing = [
            OutgoingRecord(packet_id, e.held.message.partition, e.held.message.offset, e.released)
            for packet_id, e in self.in_flight.items()
            if e.qos == 2
        ]
        outgoing += [OutgoingRecord(0, partition, offset, True) for partition, offset in self.settled]
        held = {(o.partition, o.offset) for o in outgoing}
        outgoing += [record for place, record in self.restored.items() if place not in held]
        return WindowRecord(outgoing, sorted(self.received), self.received_until)

    def opened_record(self) -> SessionOpened:
        return SessionOpened(self.client, self.expiry_s, self.since, self.disconnected_ms, self.will)

    def subscribed_record(self) -> Subscribed:
        return Subscribed([s.record for s in self.subscriptions.values()])

    def _free_packet_id(self) -> int:
        reserved = {record.packet_id for record in self.restored.values()} if self.restored else ()
        packet_id = self._last_packet_id
        for _ in range(MAX_PACKET_ID):
            packet_id = packet_id % MAX_PACKET_ID + 1
            if packet_id not in self.in_flight and packet_id not in reserved:
                self._last_packet_id = packet_id
                return packet_id
        raise AssertionError("more in flight than packet ids")  # receive_maximum is at most 65,535
