"""Changes to the stand-in's store, made on its thread: all that come in one turn of the loop share one fsync (M2).

Changes are made in the order in which they were handed in, and their futures are done in that order, once the
transaction is durable. A change that raises undoes itself only. If the commit fails, every change of the transaction
fails with its error.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from edge.agent.mqtt.store import MqttStore
from edge.client.errors import ClientClosed, DiskFull
from schemas.errors import WaystationError

T = TypeVar("T")
CHANGES_MAX: Final = 1_000  # in one transaction
AGAIN_S: Final = 2.0

_log: Final = logging.getLogger("waystation.agent")

Change = Callable[[MqttStore], Any]


class Changes:
    """`open_store` is called on the thread."""

    def __init__(self, open_store: Callable[[], MqttStore]) -> None:
        self._open_store = open_store
        self._thread = ThreadPoolExecutor(1, "waystation-mqtt")
        self._loop = asyncio.get_running_loop()
        self._store: MqttStore | None = None
        self._waiting: list[tuple[Change, asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None
        self._is_due = False

    async def open(self) -> None:
        """Raises StoreError."""
        try:
            self._store = await self._loop.run_in_executor(self._thread, self._open_store)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """Makes the changes that wait, and releases the file."""
        while self._waiting or self._running is not None:
            if self._running is None:
                self._start()
            if self._running is not None:
                await asyncio.wait([self._running])
                await asyncio.sleep(0)
        store, self._store = self._store, None
        if store is not None:
            await self._loop.run_in_executor(self._thread, store.close)
        self._thread.shutdown(wait=False)

    def make(self, change: Callable[[MqttStore], T]) -> "asyncio.Future[T]":
        """Its future has the change's result once that is durable, or its error: WaystationError."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._store is None:
            future.set_exception(ClientClosed("the agent is ending"))
            future.exception()
            return future
        self._waiting.append((change, future))
        if not self._is_due and self._running is None:
            self._is_due = True
            self._loop.call_soon(self._start)
        return future

    async def insist(self, change: Callable[[MqttStore], T]) -> T:
        """As `make`; while the disk is full it is tried again."""
        while True:
            try:
                return await self.make(change)
            except DiskFull as error:
                _log.warning("the MQTT stand-in waits: %s", error)
                await asyncio.sleep(AGAIN_S)

    def _start(self) -> None:
        self._is_due = False
        if self._running is not None or not self._waiting or self._store is None:
            return
        now, self._waiting = self._waiting[:CHANGES_MAX], self._waiting[CHANGES_MAX:]
        changes = [change for change, _ in now]
        running = self._loop.run_in_executor(self._thread, _apply, self._store, changes)
        self._running = self._loop.create_task(self._end(running, [future for _, future in now]))

    async def _end(self, running: "asyncio.Future[list[Any]]", futures: list[asyncio.Future[Any]]) -> None:
        try:
            results = await running
        except Exception as error:
            results = [error] * len(futures)
        self._running = None
        for future, result in zip(futures, results, strict=True):
            if future.cancelled():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
                future.exception()  # nobody has to wait
            else:
                future.set_result(result)
        self._start()


def _apply(store: MqttStore, changes: list[Change]) -> list[Any]:
    """The result or the error of each change, in one transaction. Raises StoreError if it cannot be committed."""
    results: list[Any] = []
    try:
        with store.transaction() as db:
            before = db.total_changes
            for change in changes:
                db.execute("SAVEPOINT change")
                try:
                    results.append(change(store))
                except WaystationError as error:
                    db.execute("ROLLBACK TO change")
                    store.forget_cached()
                    results.append(error)
                db.execute("RELEASE change")
            if db.total_changes != before:  # only reads succeed on a full disk
                store.save_clock()
    except BaseException:
        store.forget_cached()
        raise
    return results
