"""The outbox on the event loop: one thread for the store, and one fsync for all that changes meanwhile (M2).

Changes collect in a batch. A batch is committed at the end of the loop's turn, or when the commit before it has ended.
So any number of publishes in one turn share one fsync, and while the disk is busy the next batch grows. A change that
nothing waits for (a message was acknowledged) is committed within 0.1 s, or with the next batch.

If the disk is full, the messages of the batch are refused, and the other changes wait for a commit that succeeds: it is
tried again every second, and with each new message. What depends on those changes is not sent meanwhile.

If a commit fails for another reason the outbox is *stopped*: nothing more is accepted or sent, and whoever waits gets
the error. What was accepted before is in the file.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import msgspec

from edge.client.errors import ClientClosed, DiskFull, StoreFull
from edge.client.limits import Limits
from edge.client.store import Batch, Recovered, Store, StoredMessage, WaitingRow, without_added
from edge.client.store_clock import StoreClock
from edge.client.store_thread import fail, opened, released
from mqtt.packets import Properties

T = TypeVar("T")
LAZY_S: Final = 0.1
DISK_FULL_S: Final = 1.0  # until the next attempt
_encode: Final = msgspec.msgpack.encode


class Outbox:
    """Read-only: `messages` and `size` (bytes) in all, `waiting` (messages never sent), `next_expiry_s`, `failure`.

    `open_store` is called on the store's thread. `wall_s` and `running_s` tell the times (:mod:`.store_clock`).
    `on_refused` is called with the sequences of messages for which the disk has no space, `on_failure` once if the
    store fails.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        limits: Limits,
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
        on_refused: Callable[[set[int]], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._open_store, self._limits = open_store, limits
        self._wall_s, self._running_s = wall_s, running_s
        self._on_refused, self._on_failure = on_refused, on_failure
        self._thread = ThreadPoolExecutor(1, "waystation-outbox")
        self._store: Store | None = None
        self._loop = asyncio.get_running_loop()
        self._batch, self._is_urgent = Batch(), False
        self._durable: asyncio.Future[None] | None = None  # of the batch that collects
        self._running: asyncio.Future[None] | None = None  # of the batch that is being committed
        self._is_running_urgent = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_commit_due = self._is_disk_full = False
        self.messages = self.size = self.waiting = 0
        self.next_expiry_s = -math.inf  # no waiting message expires earlier
        self.failure: Exception | None = None

    async def open(self) -> Recovered:
        """Opens the store; what it holds. Raises StoreError."""
        self._store, found = await opened(self._thread, self._open_store, _recover)
        self._session, self._incarnation = found.session, found.incarnation
        clock_s, wall_s, down_most_s = found.session.clock_s, found.session.wall_s, self._limits.down_most_s
        self._clock = StoreClock(clock_s, wall_s, self._wall_s(), self._running_s(), down_most_s)
        self.messages, self.size, self.waiting = found.messages, found.size, found.waiting
        return found

    async def close(self) -> None:
        """Commits what has changed, and releases the file."""
        store, self._store = self._store, None
        if store is None:
            return
        while self.failure is None and (self._running is not None or not self._batch.is_empty):
            self._start_commit(store)
            if self._running is not None:
                await asyncio.wait([self._running])
            if self._is_disk_full:
                break
        if self._timer is not None:
            self._timer.cancel()
        fail(self._durable, ClientClosed("the client is closed"))  # the disk is full
        await released(self._thread, store)

    @property
    def now_s(self) -> float:
        """The store's clock."""
        return self._clock.at(self._running_s())

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest message there ever was."""
        return self._session.last_sequence

    # -- changes -------------------------------------------------------------------------------------------------------

    def add(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: Properties | None,
        lifetime_s: float | None,
    ) -> StoredMessage:
        """Takes a message. It is accepted once :meth:`durable` has returned. Raises NotAccepted, StoreError."""
        self._check_open()
        lifetime_s = self._limits.lifetime(lifetime_s)
        size = len(topic.encode()) + len(payload) + (len(_encode(properties)) if properties else 0)
        self._limits.check(self.messages, self.size, size)
        self._session.last_sequence += 1
        expires_s = self.now_s + lifetime_s
        fields = topic, payload, qos, retain, properties, expires_s, size, 0, self._incarnation
        message = StoredMessage(self._session.last_sequence, *fields)
        self._batch.added[message.sequence] = message
        self.next_expiry_s = min(self.next_expiry_s, expires_s)
        self.messages += 1
        self.size += size
        self.waiting += 1
        self._changed()
        return message

    def assign(self, sequence: int, packet_id: int) -> None:
        """A waiting message is about to be sent under this packet id."""
        self._batch.assigned[sequence] = packet_id
        self._session.last_packet_id = packet_id
        self.waiting -= 1
        self._changed()

    def release(self, sequence: int, reason: int) -> None:
        """PUBREC with this reason code has arrived."""
        self._batch.released[sequence] = reason
        self._changed()

    def remove(self, sequence: int, size: int, *, waiting: bool, urgent: bool = False) -> None:
        """A message has ended; `waiting`: it was never sent."""
        self._batch.removed.append(sequence)
        self.messages -= 1
        self.size -= size
        self.waiting -= waiting
        self._changed(urgent=urgent)

    def inbound(self, packet_id: int, is_accepted: bool) -> None:
        """The application has accepted an inbound QoS 2 message, or its exchange has ended."""
        self._batch.inbound[packet_id] = is_accepted
        self._changed()

    def established(self) -> None:
        """A gateway has accepted a connection."""
        self._session.is_established = True
        self._changed()

    def taken_over(self, open_ids: Iterable[int]) -> None:
        """Another bearer than MQTT has the store; these packet ids are those of exchanges that MQTT leaves open."""
        self._session.is_taken_over = True
        self.open_exchanges(open_ids)

    def resumed(self) -> None:
        """MQTT is connected: from now on it may send what has a packet id."""
        if self._session.is_taken_over:
            self._session.is_taken_over = False
            self._changed()

    def open_exchanges(self, packet_ids: Iterable[int]) -> None:
        """The messages of these packet ids end, or have ended, and their exchanges have not."""
        self._batch.open_ids.update(dict.fromkeys(packet_ids, True))
        self._changed()

    def end_exchange(self, packet_id: int) -> None:
        """An open exchange has ended."""
        self._batch.open_ids[packet_id] = False
        self._changed(urgent=False)

    # -- durability ----------------------------------------------------------------------------------------------------

    def barrier(self) -> asyncio.Future[None] | None:
        """Done once every change so far that something waits for is durable; None if all are; failed if the outbox is
        stopped. Do not cancel it."""
        if self.failure is not None:
            failed: asyncio.Future[None] = self._loop.create_future()
            fail(failed, self.failure)
            return failed
        if self._is_urgent:
            if self._durable is None:
                self._durable = self._loop.create_future()
            return self._durable
        return self._running if self._is_running_urgent else None

    async def durable(self) -> None:
        """Returns once every change so far that something waits for is durable. Raises StoreError."""
        barrier = self.barrier()
        if barrier is not None:
            await asyncio.shield(barrier)

    async def load(self, after: int, messages_max: int, size_max: int) -> list[StoredMessage]:
        """Waiting messages with a sequence above `after`; see :meth:`edge.client.store.Store.waiting`."""
        return await self.on_store(lambda store: store.waiting(after, messages_max, size_max))

    async def expired(self) -> list[WaitingRow]:
        """See :meth:`edge.client.store.Store.expired`."""
        now_s = self.now_s
        return await self.on_store(lambda store: store.expired(now_s))

    async def find_next_expiry(self) -> None:
        """Sets `next_expiry_s` to when the next waiting message expires."""
        self.next_expiry_s = math.inf
        found_s = await self.on_store(lambda store: store.next_expiry())
        if found_s is not None:
            self.next_expiry_s = min(self.next_expiry_s, found_s)

    async def on_store(self, call: Callable[[Store], T]) -> T:
        """The result of `call`, on the store's thread after all changes so far; while the disk is full it waits for
        them. Raises DiskFull if `call` itself needs space: then it has changed nothing. Another error stops the
        outbox."""
        await self._all_durable()
        self._check_open()
        store = self._store
        assert store is not None
        try:
            return await self._loop.run_in_executor(self._thread, call, store)
        except DiskFull:
            raise
        except Exception as error:
            self._stop(error)
            raise

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _all_durable(self) -> None:
        """As :meth:`durable`; what was refused because the disk is full is not waited for, all else is tried again."""
        while True:
            try:
                return await self.durable()
            except StoreFull:
                self._check_open()

    def _check_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._store is None:
            raise ClientClosed("the client is closed")

    def _changed(self, *, urgent: bool = True) -> None:
        if urgent:
            self._is_urgent = True
            if not self._is_commit_due and self._running is None:
                self._is_commit_due = True
                self._loop.call_soon(self._commit)
        elif self._timer is None:
            self._timer = self._loop.call_later(LAZY_S, self._commit_late)

    def _commit(self) -> None:
        self._is_commit_due = False
        if self._store is not None:
            self._start_commit(self._store)

    def _commit_late(self) -> None:
        self._timer = None
        self._commit()

    def _start_commit(self, store: Store) -> None:
        if self._running is not None or self.failure is not None or not (self._is_urgent or not self._batch.is_empty):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._batch = self._batch, Batch()
        self._session.clock_s, self._session.wall_s = self.now_s, self._wall_s()
        batch.session = msgspec.structs.replace(self._session)
        self._running, self._durable = self._durable or self._loop.create_future(), None
        self._is_running_urgent, self._is_urgent = self._is_urgent, False
        commit = self._loop.run_in_executor(self._thread, store.commit, batch)
        commit.add_done_callback(partial(self._committed, batch))

    def _committed(self, batch: Batch, commit: asyncio.Future[None]) -> None:
        error = commit.exception()
        self._is_disk_full = isinstance(error, DiskFull)
        if error is not None and not self._is_disk_full:
            self._stop(error if isinstance(error, Exception) else RuntimeError(str(error)))
            return
        running, self._running = self._running, None
        assert running is not None
        if self._is_disk_full:
            self._refuse(batch, running, str(error))
            return
        self._is_running_urgent = False
        running.set_result(None)
        if self._is_urgent and not self._is_commit_due:
            self._is_commit_due = True
            self._loop.call_soon(self._commit)
        elif not self._batch.is_empty:
            self._changed(urgent=False)

    def _refuse(self, batch: Batch, running: asyncio.Future[None], problem: str) -> None:
        """The disk has no space for the batch."""
        gone = {*batch.removed, *self._batch.removed}
        for sequence, message in batch.added.items():
            if sequence not in gone:
                self.messages -= 1
                self.size -= message.size
                self.waiting -= sequence not in batch.assigned
        self._batch = without_added(batch, self._batch)
        self._is_urgent, self._is_running_urgent = self._is_urgent or self._is_running_urgent, False
        if self._timer is None:
            self._timer = self._loop.call_later(DISK_FULL_S, self._commit_late)
        fail(running, StoreFull(f"{problem}; publish again when there is space"))
        if batch.added:
            self._on_refused(set(batch.added))

    def _stop(self, error: Exception) -> None:
        if self.failure is not None:
            return
        self.failure = error
        fail(self._running, error)
        fail(self._durable, error)
        self._running = self._durable = None
        self._is_urgent = self._is_running_urgent = False
        self._on_failure(error)


def _recover(store: Store) -> Recovered:
    return store.recover()
