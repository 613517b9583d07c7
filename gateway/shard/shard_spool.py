"""One shard's spool as its home uses it: what the next commit adds and deletes, and reading that waits for the disk.

Numbers of rows and messages are the shard's own, in the order in which they are given, and none is given twice.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from gateway.errors import SpoolError
from gateway.shard.messages import Entry, Message
from gateway.shard.outage import SpoolOutage
from gateway.shard.spool import FinishedMessage, Spool, SpooledEntry, SpoolSize
from gateway.shard.spool_batch import SpoolBatch
from schemas.envelope import Instruction

_READ_AGAIN_S = (0.25, 5.0)
"""The first and the longest pause before a read of the spool is tried again."""

R = TypeVar("R")


class SpoolThread:
    """Runs a spool's calls on `executor`, one after the other: SQLite's checkpoints stall for 100 ms."""

    def __init__(self, spool: Spool, executor: Executor) -> None:
        self._spool = spool
        self._executor = executor

    async def call(self, method: Callable[..., R], *arguments: Any) -> R:
        """`method` is a function of :class:`Spool`, for example `Spool.load`."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, method, self._spool, *arguments)

    @property
    def size(self) -> SpoolSize:
        """How much the spool holds; asks no thread."""
        return self._spool.size

    def close(self) -> None:
        """After the executor has shut down."""
        self._spool.close()


def open_spools(directory: Path, shards: int, executor: Executor) -> dict[int, SpoolThread]:
    """The files of all shards, by number. Raises SpoolError."""
    return {n: SpoolThread(Spool(str(directory / f"{n}.sqlite"), exclusive=True), executor) for n in range(shards)}


class ShardSpool:
    """`clock` gives seconds since the epoch; `stopping` is set when the gateway stops."""

    def __init__(
        self,
        shard: int,
        thread: SpoolThread,
        clock: Callable[[], float],
        stopping: asyncio.Event,
        counts: Counter[str],
    ) -> None:
        self._shard = shard
        self._thread = thread
        self._clock = clock
        self._stopping = stopping
        self._counts = counts
        self._batch = SpoolBatch()
        self._gone: set[int] = set()
        self._last_mid = 0
        self._last_row = 0
        self._committed_row = 0
        self.outage = SpoolOutage(shard)

    # -- what the next commit has --------------------------------------------------------------------------------------

    def add_message(self, message: Message, instructions: list[Instruction]) -> int:
        """Returns the message's number."""
        self._last_mid += 1
        self._batch.messages.append((self._last_mid, self._shard, message, instructions))
        return self._last_mid

    def add_row(self, mid: int, spool_key: str, entry: Entry) -> None:
        """Gives an entry its row: the session named `spool_key` is to get message `mid`."""
        self._last_row += 1
        entry.row, may_be_sent = self._last_row, entry.sent or entry.dup
        self._batch.rows.append(
            (entry.row, mid, spool_key, entry.qos, entry.retain, entry.subscription_ids, may_be_sent)
        )

    def delete_row(self, row: int) -> None:
        """Its recipient is finished. The row is still there until the deletion is committed: see `is_gone`."""
        self._batch.deleted_rows.append(row)
        self._gone.add(row)

    def add_instruction(self, mid: int, message: Message, instruction: Instruction) -> None:
        """A further instruction for message `mid`."""
        self._last_mid += 1
        self._batch.instructions.append((mid, self._last_mid, self._shard, message, instruction))

    def put_keyed(self, message_id: str, known: tuple[bytes, int] | None) -> None:
        """The fingerprint and time of a keyed message; None to forget it."""
        self._batch.keyed[message_id] = known

    def forget(self, finished: list[FinishedMessage]) -> None:
        """Messages without rows that are relinquished."""
        self._batch.forgotten.extend(message.mid for message in finished)

    def is_gone(self, row: int) -> bool:
        """Whether a row that can still be read is finished."""
        return row in self._gone

    @property
    def committed_row(self) -> int:
        """Rows up to this one can be read."""
        return self._committed_row

    @property
    def waits(self) -> bool:
        """Whether there is anything to commit."""
        return not self._batch.is_empty()

    @property
    def waiting(self) -> tuple[int, int]:
        """Messages, and their bytes of payload, that wait for the next commit."""
        return len(self._batch.messages), self._batch.size

    # -- commits -------------------------------------------------------------------------------------------------------

    def take(self) -> tuple[SpoolBatch, int]:
        """What is to be committed, and the last row in it; `committed` or `put_back` follows."""
        batch, self._batch = self._batch, SpoolBatch()
        return batch, self._last_row

    async def commit(self, batch: SpoolBatch) -> None:
        """Raises SpoolError; then nothing has changed, and the batch goes in front of what has come since."""
        try:
            await self._thread.call(Spool.commit, batch)
        except SpoolError:
            self._batch = batch.then(self._batch)
            raise

    def committed(self, batch: SpoolBatch, last_row: int) -> None:
        """A batch that `take` has given is committed."""
        self._committed_row = last_row
        self._gone.difference_update(batch.deleted_rows)

    def take_done(self) -> list[tuple[Message, list[Instruction]]]:
        """Takes out of a batch that cannot be committed what has come and gone: messages to be relinquished."""
        done, rows = self._batch.take_done()
        self._gone -= rows
        return [(message, instructions) for _, message, instructions in done]

    async def commit_positions(self, positions: dict[str, bytes]) -> None:
        """Raises SpoolError."""
        await self._thread.call(Spool.commit, SpoolBatch(positions=positions))

    # -- reading -------------------------------------------------------------------------------------------------------

    async def start(self) -> dict[str, bytes]:
        """Once, before anything else: the positions that were last committed."""
        positions = await self._thread.call(Spool.positions)
        self._last_mid, self._last_row = await self._thread.call(Spool.last_numbers)
        self._committed_row = self._last_row
        return positions

    def number_above(self, row: int) -> None:
        """Rows that are given from now on have higher numbers; a session log may know of some that are not here."""
        self._last_row = max(self._last_row, row)
        self._committed_row = max(self._committed_row, row)

    async def backlogs(self) -> dict[str, tuple[int, int]]:
        """Rows and bytes of payload waiting, by session."""
        return await self._thread.call(Spool.backlogs)

    async def keyed(self) -> list[tuple[str, bytes, int]]:
        """Ids of keyed messages with fingerprint and time, oldest first."""
        return await self._thread.call(Spool.keyed)

    async def finished(self) -> list[FinishedMessage]:
        """Messages whose last row is gone. Raises SpoolError."""
        return await self._thread.call(Spool.finished)

    async def expired(self, now_ms: int) -> list[SpooledEntry]:
        """Some of the rows whose message's time is over. Raises SpoolError."""
        return await self._thread.call(Spool.expired, now_ms)

    async def load(self, spool_key: str, after_row: int, limit: int) -> list[SpooledEntry]:
        """Up to `limit` rows of a session behind `after_row`, in order. While reading fails it is tried again: whoever
        waits for it waits on (G9). Raises SpoolError only when the gateway stops."""
        pause_s, longest_s = _READ_AGAIN_S
        while True:
            try:
                page = await self._thread.call(Spool.load, spool_key, after_row, limit)
            except SpoolError as error:
                self._counts["spool_failed_read"] += 1
                self.outage.failed(spool_key, error, self._clock())
                if self._stopping.is_set():
                    raise
            else:
                self.outage.mended(spool_key, self._clock())
                return page
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, longest_s)

    @property
    def size(self) -> SpoolSize:
        """How much the spool holds; asks no thread."""
        return self._thread.size

    def close(self) -> None:
        self._thread.close()
