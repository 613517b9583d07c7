"""Reads the ledger's tables for requests beside the ledger's own queries, one request at a time, in bounded time.

The tables are opened and queried in a thread of its own, by one thread of DuckDB and in MEMORY_MB, so that no request
takes much from the ledger, whatever it asks. Whoever asks meanwhile waits for WAIT_S at most. A reading that takes
longer than LIMIT_S is answered with an error, and interrupted until it ends; only then the next one begins.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import TypeVar

import pyarrow as pa

from jobs.errors import QueryError
from jobs.query.journeys import TABLES_OF_JOURNEYS
from jobs.query.ledger_reader import Dates, LedgerReader, Memory, installed_views

WAIT_S = 2.0
LIMIT_S = 6.0
"""With WAIT_S less than the time for which a connection lives (:mod:`jobs.observe.server`)."""
AGAIN_S = 0.05
"""How often a reading is interrupted: an interruption between two statements has no effect."""
MEMORY_MB = 256
"""Of DuckDB; reading the files takes about 100 MB more."""

R = TypeVar("R")
Open = Callable[[Dates], AbstractContextManager[LedgerReader]]
"""Opens the tables; their rows of these dates."""


class BoundedReading:
    """Reads the tables under `tables`; used by one event loop. Close it after that has ended."""

    def __init__(self, tables: str, wait_s: float = WAIT_S, limit_s: float = LIMIT_S) -> None:
        self._tables = tables
        self._wait_s = wait_s
        self._limit_s = limit_s
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "journeys")
        self._last: tuple[_Reading, Future[object]] | None = None
        self._watches: set[asyncio.Task[None]] = set()

    async def read(self, work: Callable[[Open], R]) -> R:
        """What `work` returns, which runs in the thread. Raises QueryError, also if it is not this request's turn in
        time, or the time is up."""
        try:
            async with asyncio.timeout(self._wait_s):
                await self._turn.acquire()
        except TimeoutError:
            raise QueryError("the ledger is busy with another request: try again in a few seconds") from None
        reading = _Reading(self._tables)
        submitted = self._thread.submit(work, reading.open)
        self._last = (reading, submitted)  # type: ignore[assignment]
        ended = asyncio.wrap_future(submitted)
        watch = asyncio.create_task(self._watch(reading, ended))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        done, _ = await asyncio.wait({ended}, timeout=self._limit_s)
        if not done:
            raise QueryError(
                f"the search took longer than {self._limit_s:g} s: the ledger is large, or its machine is busy; ask "
                f"with `waystation journey` or `waystation query`, which may take their time"
            )
        return ended.result()

    async def _watch(self, reading: "_Reading", ended: asyncio.Future[R]) -> None:
        """Interrupts the reading when its time is up; then it is the next one's turn."""
        await asyncio.wait({ended}, timeout=self._limit_s)
        while not ended.done():
            reading.give_up()
            await asyncio.wait({ended}, timeout=AGAIN_S)
        if not ended.cancelled():
            ended.exception()  # nobody may be waiting for it any more
        self._turn.release()

    def close(self) -> None:
        """Interrupts what is being read, and waits for its end."""
        if self._last is not None:
            reading, submitted = self._last
            submitted.cancel()
            while not submitted.done():
                reading.give_up()
                wait([submitted], AGAIN_S)
        self._thread.shutdown()


class _Reading:
    """The tables that are open for one request; given up from another thread."""

    def __init__(self, tables: str) -> None:
        self._tables = tables
        self._lock = Lock()
        self._reader: LedgerReader | None = None
        self._is_given_up = False

    @contextmanager
    def open(self, dates: Dates) -> Iterator[LedgerReader]:
        self._refuse_if_given_up()
        views = {name: sql for name, sql in installed_views().items() if name == "message_journey"}
        reader = LedgerReader(self._tables, views, dates, Memory(MEMORY_MB, ""), TABLES_OF_JOURNEYS, 1)
        try:
            with self._lock:
                self._reader = reader
            self._refuse_if_given_up()
            yield reader
        finally:
            with self._lock:
                self._reader = None
            reader.close()
            pa.default_memory_pool().release_unused()  # Arrow would keep what it has read the files into

    def give_up(self) -> None:
        with self._lock:
            self._is_given_up = True
            if self._reader is not None:
                self._reader.interrupt()

    def _refuse_if_given_up(self) -> None:
        if self._is_given_up:
            raise QueryError("the time for this search is up")
