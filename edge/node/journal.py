"""When a node's changes are on disk: one thread for the file, and one fsync for all that changes meanwhile (M2).

Changes collect in a batch, which is committed at the end of the loop's turn, or when the commit before it has ended
(as :mod:`edge.client.outbox` does). So all events of one read from a socket share one fsync, and any number of submits
do. A change that nothing waits for is committed within 0.1 s, or with the next batch.

What must not be said before it is durable, is said by a callback of the batch: `done`, or `accepted` and `refused`.
They are called on the loop, in order, and do not depend on a task that might be cancelled meanwhile.

If the disk is full, what the batch would add is refused; its other changes, such as a message that has been taken for
the application, wait for a commit that succeeds, with their callbacks: the next one, tried at least every second. If a
commit fails for another reason the journal is *stopped*: nothing more is accepted or answered. What was accepted is in
the file.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from bundles.receipt import Receipt
from edge.client.errors import DiskFull, StoreFull
from edge.client.store_clock import StoreClock
from edge.client.store_thread import fail, opened, released
from edge.node.batch import Batch, Meta, Recovered
from edge.node.bundle_store import BundleStore
from edge.node.errors import NodeClosed

T = TypeVar("T")
LAZY_S: Final = 0.1
DISK_FULL_S: Final = 1.0  # until the next attempt


class Journal:
    """`open_store` is called on the file's thread. `wall_s`, `running_s`, `down_most_s`: see
    :mod:`edge.client.store_clock`. `on_failure` is called once if the file fails. Read-only: `failure`,
    `incarnation`."""

    def __init__(
        self,
        open_store: Callable[[], BundleStore],
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
        down_most_s: float,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._open_store, self._wall_s, self._running_s = open_store, wall_s, running_s
        self._down_most_s, self._on_failure = down_most_s, on_failure
        self._thread = ThreadPoolExecutor(1, "waystation-node")
        self._store: BundleStore | None = None
        self._loop = asyncio.get_running_loop()
        self._batch, self._running_batch = Batch(), Batch()
        self._is_urgent = self._has_changed = False
        self._durable: asyncio.Future[None] | None = None  # of the batch that collects
        self._running: asyncio.Future[None] | None = None  # of the batch that is being committed
        self._commit_task: asyncio.Future[None] | None = None
        self._is_commit_due = self._is_disk_full = False
        self._timer: asyncio.TimerHandle | None = None
        self._sequence = 0
        self.failure: Exception | None = None

    async def open(self) -> Recovered:
        """Opens the file; what it holds. Raises StoreError."""
        self._store, found = await opened(self._thread, self._open_store, _recover)
        meta = found.meta
        self.name, self.incarnation, self._sequence = meta.name, meta.incarnation, meta.last_sequence
        self._clock = StoreClock(meta.clock_s, meta.wall_s, self._wall_s(), self._running_s(), self._down_most_s)
        return found

    async def close(self) -> None:
        """Commits what has changed, and releases the file."""
        store = self._store
        if store is None:
            return
        while self.failure is None and (self._running is not None or self._has_changed):
            self._start_commit(store)
            if self._commit_task is not None:
                await asyncio.wait([self._commit_task])
                await asyncio.sleep(0)
            if self._is_disk_full:
                break
        self._store = None
        self._refuse_added(NodeClosed("the mesh's node was closed meanwhile"))
        if self._timer is not None:
            self._timer.cancel()
        await released(self._thread, store)

    @property
    def now_s(self) -> float:
        """The store's clock: seconds that have passed, as far as is known; it never goes back."""
        return self._clock.at(self._running_s())

    @property
    def now_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch: for people and headers only."""
        return max(0, int(self._wall_s() * 1000))

    @property
    def wall_s(self) -> float:
        """The wall clock, for the log."""
        return self._wall_s()

    @property
    def last_sequence(self) -> int:
        """Of the newest message of ours that there ever was."""
        return self._sequence

    def use_sequence(self, sequence: int) -> None:
        """A new message has this number: on disk with the batch that collects."""
        self._sequence = sequence

    # -- changes -------------------------------------------------------------------------------------------------------

    def change(self, *, urgent: bool = True) -> Batch:
        """The batch that collects: note a change in it before anything else is awaited. Not urgent: nothing waits for
        it. Raises NodeClosed, StoreError."""
        self._check_open()
        if urgent:
            self._is_urgent = True
            if not self._is_commit_due and self._running is None:
                self._is_commit_due = True
                self._loop.call_soon(self._commit)
        elif self._timer is None:
            self._timer = self._loop.call_later(LAZY_S, self._commit_late)
        self._has_changed = True
        return self._batch

    async def durable(self) -> None:
        """Returns once every change so far is on disk, or refused. Raises StoreError, NodeClosed."""
        self._check_open()
        if self._has_changed:
            self.change()
            if self._durable is None:
                self._durable = self._loop.create_future()
            await asyncio.shield(self._durable)
        elif self._running is not None:
            await asyncio.shield(self._running)

    async def answered(self) -> None:
        """As :meth:`durable`, for the changes that something waits for."""
        if self._is_urgent or self.failure is not None:
            await self.durable()

    def when_durable(self, call: Callable[[], None]) -> None:
        """Calls it when every change so far is on disk: at once, if all are. Raises StoreError, NodeClosed."""
        self._check_open()
        if self._has_changed:
            self.change().done.append(call)
        elif self._running is not None:
            self._running_batch.done.append(call)
        else:
            call()

    async def read(self, call: Callable[[BundleStore], T]) -> T:
        """The result of `call` on the file's thread, after the commit that runs. Raises DiskFull if `call` needs space:
        then it has changed nothing; and StoreError, which stops the node."""
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

    def changed_receipts(self) -> list[Receipt]:
        """Those that are on disk with the batch that collects: a read does not find them yet."""
        return self._batch.receipts

    def read_now(self, call: Callable[[BundleStore], T]) -> T:
        """As :meth:`read`, but stops the loop meanwhile: only where awaiting is not possible."""
        self._check_open()
        assert self._store is not None
        return self._thread.submit(call, self._store).result()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._store is None:
            raise NodeClosed("the mesh's node is closed")

    def _commit(self) -> None:
        self._is_commit_due = False
        if self._store is not None:
            self._start_commit(self._store)

    def _commit_late(self) -> None:
        self._timer = None
        self._commit()

    def _start_commit(self, store: BundleStore) -> None:
        if self._running is not None or self.failure is not None or not self._has_changed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._batch, self._has_changed, self._is_urgent = self._batch, Batch(), False, False
        self._running_batch = batch
        batch.freeze(Meta(self.name, self.incarnation, self._sequence, self.now_s, self._wall_s()))
        self._running, self._durable = self._durable or self._loop.create_future(), None
        self._commit_task = self._loop.run_in_executor(self._thread, store.commit, batch)
        self._commit_task.add_done_callback(partial(self._committed, batch))

    def _committed(self, batch: Batch, commit: asyncio.Future[None]) -> None:
        error = commit.exception()
        self._is_disk_full = isinstance(error, DiskFull)
        if error is not None and not self._is_disk_full:
            self._stop(error if isinstance(error, Exception) else RuntimeError(str(error)))
            return
        running, self._running, self._commit_task = self._running, None, None
        self._running_batch = Batch()
        assert running is not None
        if self._is_disk_full:
            self._refuse(batch, running, StoreFull(f"{error}; try again when there is space"))
            return
        try:
            for call in (*batch.accepted, *batch.done):
                call()
        except Exception as bug:
            self._stop(bug)
            raise
        if not running.done():
            running.set_result(None)
        if self._is_urgent and not self._is_commit_due:
            self._is_commit_due = True
            self._loop.call_soon(self._commit)

    def _refuse(self, batch: Batch, running: asyncio.Future[None], error: StoreFull) -> None:
        """The disk has no space for the batch: what is left of it goes before what has changed since."""
        left = batch.without_added()
        left.merge(self._batch)
        self._batch, self._has_changed = left, True
        if self._durable is not None:
            running.add_done_callback(partial(_follow, self._durable))
        self._durable = running
        for refuse in batch.refused:
            refuse(error)
        if self._timer is None:
            self._timer = self._loop.call_later(DISK_FULL_S, self._commit_late)

    def _stop(self, error: Exception) -> None:
        if self.failure is not None:
            return
        self.failure = error
        fail(self._running, error)
        fail(self._durable, error)
        self._running = self._durable = None
        self._refuse_added(error)
        self._on_failure(error)

    def _refuse_added(self, error: Exception) -> None:
        batches, self._batch, self._running_batch = (self._running_batch, self._batch), Batch(), Batch()
        for batch in batches:
            for refuse in batch.refused:
                refuse(error)


def _follow(waiting: asyncio.Future[None], ended: asyncio.Future[None]) -> None:
    error = ended.exception()
    if waiting.done():
        return
    if error is None:
        waiting.set_result(None)
    else:
        fail(waiting, error)


def _recover(store: BundleStore) -> Recovered:
    return store.recover()
