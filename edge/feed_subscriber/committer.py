"""Writes what is to be stored, off the event loop: in the background, or when somebody waits for it (S3).

Several who wait share a write: one that begins after they have asked has their changes. A write that has begun ends,
also if whoever waits for it is cancelled, because its changes are given only once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from edge.completion import completed
from edge.feed_subscriber.state import StateChange, StateStore


class Committer:
    """`changes` gives what is to be stored since it was called last, and `stored` is called once it is durable. `fail`
    is called with the error of a write, after which nothing is written any more."""

    def __init__(
        self,
        thread: ThreadPoolExecutor,
        store: StateStore,
        changes: Callable[[], StateChange | None],
        every_s: float,
        stored: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._thread, self._store, self._changes, self._stored = thread, store, changes, stored
        self._every_s, self._fail = every_s, fail
        self._lock = asyncio.Lock()
        self._asked = self._done = 0
        self._error: Exception | None = None

    async def run(self) -> None:
        """Until it is cancelled, or a write fails."""
        while self._error is None:
            await asyncio.sleep(self._every_s)
            await self._write()

    async def durable(self) -> None:
        """Returns once all that is committed by now is durable. Raises StoreError."""
        self._asked += 1
        asked = self._asked
        async with self._lock:
            if self._done < asked:
                done = self._asked
                await self._write_locked()
                self._done = done
        if self._error is not None:
            raise self._error

    async def _write(self) -> None:
        async with self._lock:
            await self._write_locked()

    async def _write_locked(self) -> None:
        if self._error is None:
            await completed(self._write_changes())

    async def _write_changes(self) -> None:
        change = self._changes()
        try:
            if change is not None:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._store.commit, change)
            self._stored()
        except Exception as error:  # whatever it was, what is stored and what is known here differ from now on
            self._error = error
            self._fail(error)
