"""What waits on disk for the application, in order: envelopes, and news of its own messages (M8, M14).

A row leaves the disk after the application's part has returned, and so has what it needs on disk itself. If the process
is killed in between, that part gets the row again when the agent starts: it recognises the message by its id.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from edge.answers import Changes
from edge.reconnect import FullJitter

Row = TypeVar("Row")
_log: Final = logging.getLogger("waystation.mesh")


class HandOver(Generic[Row]):
    """Runs `give` for each row, in the order of `number`. `read(after)` returns the next rows after a number, `done`
    removes one. A row whose `give` fails is given again, after a pause; the rows behind it wait."""

    def __init__(
        self,
        what: str,
        number: Callable[[Row], int],
        read: Callable[[int], Awaitable[Sequence[Row]]],
        give: Callable[[Row], Awaitable[None]],
        done: Callable[[Row], None],
        backoff: FullJitter,
    ) -> None:
        self._what, self._number, self._read, self._give, self._done = what, number, read, give, done
        self._backoff, self._changes = backoff, Changes()
        self._has_news = True
        self._after = 0

    def wake(self) -> None:
        """There are new rows."""
        self._has_news = True
        self._changes.wake()

    async def run(self) -> None:
        """For ever. Raises StoreError."""
        while True:
            await self._changes.until(lambda: self._has_news)
            self._has_news = False
            while rows := await self._read(self._after):
                for row in rows:
                    await self._one(row)

    async def _one(self, row: Row) -> None:
        attempt = 0
        while True:
            try:
                await self._give(row)
            except Exception as error:
                if attempt == 0:
                    _log.exception("%s cannot be handed over, and is tried again: %s", self._what, error)
                await asyncio.sleep(self._backoff.delay_s(attempt))
                attempt += 1
                continue
            self._after = self._number(row)
            self._done(row)
            return
