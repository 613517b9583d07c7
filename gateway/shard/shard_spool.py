"""One shard's spool as its home uses it: what the next commit adds and deletes, and reading that waits for the disk.

Numbers of rows and messages are the shard's own, in the order in which they are given, and none is given twice.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gateway.errors import ShardLost, SpoolError
from gateway.shard.changelog import Changelog
from gateway.shard.earlier_spool import EarlierShard
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.messages import Delivery, Message, PendingMessage
from gateway.shard.outage import SpoolOutage
from gateway.shard.session import client_of
from gateway.shard.spool import FinishedMessage, Spool, SpoolContents, SpooledDelivery, SpoolSize
from gateway.shard.spool_batch import Part, SpoolBatch
from gateway.shard.spool_records import MARKER_KEY, Marker, Record, records_of
from gateway.shard.spool_tables import FenceState, Leftovers
from schemas.envelope import Instruction
from schemas.fences import fence_key

_READ_AGAIN_S = (0.25, 5.0)
"""The first and the longest pause before a read of the spool is tried again."""

_COMMIT_EVERY_S = 120.0
"""Where gateways share shards: so often at least, since commits notice what others have written. Well below
`min.compaction.lag.ms` of the topic."""

_MENDED_AT_ONCE = 500
"""Keys that are written again together: each may have the payload of a message."""

R = TypeVar("R")


class SpoolThread:
    """Runs a spool's calls on `executor`, one after the other: SQLite's checkpoints stall for 100 ms."""

    def __init__(self, spool: Spool, executor: Executor) -> None:
        self.spool = spool
        self._executor = executor

    async def call(self, method: Callable[..., R], *arguments: Any) -> R:
        """`method` is a function of :class:`Spool`, for example `Spool.load`."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, method, self.spool, *arguments)

    @property
    def size(self) -> SpoolSize:
        """How much the spool holds; asks no thread."""
        return self.spool.size

    def close(self) -> None:
        """After the executor has shut down."""
        self.spool.close()


def open_spool(directory: Path, shard: int, executor: Executor) -> SpoolThread:
    """The file of a shard. Raises SpoolError."""
    return SpoolThread(Spool(str(directory / f"{shard}.sqlite"), exclusive=True), executor)


class Taken(NamedTuple):
    """What one commit writes: `last_row` and `last_mid` are the highest numbers in it or before."""

    batch: SpoolBatch
    last_row: int
    last_mid: int


class ShardSpool:
    """A commit is first written to the changelog on Kafka, and then to the file, which is its view. What the file could
    not take waits in memory; the shard's positions are in effect all the same.

    Where gateways share shards, a commit may stand behind the fence of another owner. So it is in effect, and goes to
    the file, only once `confirm` has returned.

    `stopping` is set when the gateway stops.
    """

    def __init__(
        self,
        shard: int,
        thread: SpoolThread,
        changelog: Changelog,
        stopping: asyncio.Event,
        counts: Counter[str],
        epoch: int = 0,
    ) -> None:
        self.epoch = epoch
        self._shard = shard
        self._thread = thread
        self._changelog = changelog
        self._stopping = stopping
        self._counts = counts
        self._batch = SpoolBatch()
        self._unapplied = SpoolBatch()
        self._is_behind = False
        self._positions: dict[str, bytes] = {}
        self._uncommitted: list[bytes] = []
        self._gone: set[int] = set()
        self._last_mid = 0
        self._last_row = 0
        self._committed_row = 0
        self._committed_at = -math.inf
        self._fences_in_file = FenceState([], [])
        self._confirm: Callable[[], Awaitable[None]] | None = None
        self._over = asyncio.Event()
        self.outage = SpoolOutage(shard)

    def begin(
        self, epoch: int, fenced: FencedPartition, offset: int, confirm: Callable[[], Awaitable[None]] | None
    ) -> None:
        """Once the file is at the changelog's end, at `offset`, and before the first commit. With `confirm` gateways
        share shards: it returns once it is known that no higher fence stands before what was written until then, and
        else raises ShardLost."""
        self.epoch, self._confirm = epoch, confirm
        self._fences_in_file = fenced.state
        self._changelog.begin(epoch, None if confirm is None else fenced, offset)

    # -- what the next commit has --------------------------------------------------------------------------------------

    def add_message(self, message: Message, instructions: list[Instruction]) -> int:
        """Returns the message's number."""
        self._last_mid += 1
        self._batch.messages.append((self._last_mid, message, instructions))
        return self._last_mid

    def add_row(self, mid: int, spool_key: str, delivery: Delivery) -> None:
        """Gives a delivery its row: the session named `spool_key` is to get message `mid`."""
        self._last_row += 1
        delivery.row, may_be_sent = self._last_row, delivery.sent or delivery.dup
        self._batch.rows.append(
            (delivery.row, mid, spool_key, delivery.qos, delivery.retain, delivery.subscription_ids, may_be_sent)
        )

    def delete_row(self, row: int) -> None:
        """Its recipient is finished. The row is still there until the deletion is committed: see `is_gone`."""
        self._batch.deleted_rows.append(row)
        self._gone.add(row)

    def add_instruction(self, mid: int, message: Message, instruction: Instruction) -> None:
        """A further instruction for message `mid`."""
        self._last_mid += 1
        self._batch.instructions.append((self._last_mid, mid, message, instruction))

    def put_finished(self, clients: dict[Part, list[str]], ended: list[tuple[int, int]]) -> None:
        """Who is finished with messages that others wait for, and positions of which nobody needs to know that."""
        self._batch.finished_clients |= clients
        self._batch.ended_positions += ended

    def put_keyed(self, message_id: str, known: tuple[bytes, int] | None) -> None:
        """The fingerprint and time of a keyed message; None to forget it."""
        self._batch.keyed[message_id] = known

    def put_bundles(self, taken: dict[bytes, bytes | None]) -> None:
        """What was taken of sources of bundles, by key; None to forget one."""
        self._batch.bundles |= taken

    def put_sources(self, states: dict[bytes, bytes]) -> None:
        """States of sources of redundant feeds, by key."""
        self._batch.sources |= states

    def forget(self, finished: list[FinishedMessage]) -> None:
        """Messages without rows that are relinquished."""
        self._batch.forgotten.extend(number for message in finished for number in message.numbers)

    def is_gone(self, row: int) -> bool:
        """Whether a row that can still be read is finished."""
        return row in self._gone

    @property
    def last_row(self) -> int:
        """The row that was given last, committed or not."""
        return self._last_row

    @property
    def committed_row(self) -> int:
        """Rows up to this one can be read."""
        return self._committed_row

    @property
    def waiting(self) -> tuple[int, int]:
        """Messages, and their bytes (:attr:`Message.size`), that wait to be written to the file."""
        unapplied, batch = self._unapplied, self._batch
        return len(unapplied.messages) + len(batch.messages), unapplied.size + batch.size

    # -- commits -------------------------------------------------------------------------------------------------------

    def take(self) -> Taken:
        """What is to be committed; `commit` follows."""
        taken, self._batch = Taken(self._batch, self._last_row, self._last_mid), SpoolBatch()
        return taken

    async def commit(self, taken: Taken, positions: dict[str, bytes], *, is_last: bool = False) -> None:
        """Writes what was taken, with the positions that are in effect then; those that are not named stay. Nothing is
        written if nothing has changed. If it `is_last`, another home goes on: returns once Kafka has it, whether it
        counts or not, and leaves the file as it is.

        Raises SpoolError if the file cannot be written: what it lacks is written with the next commit. Raises BusError,
        ShardLost.
        """
        positions, now = self._positions | positions, asyncio.get_running_loop().time()
        is_same = taken.batch.is_empty() and positions == self._positions
        if is_same and not self._is_behind and not self._must_commit(now):
            return
        await self._mend()
        marker = Marker(taken.last_row, taken.last_mid, positions, self.epoch)
        tombstones: list[Record] = [(key, None) for key in [*self._uncommitted, *self._removable_fences()]]
        offset, at_ms = await self._changelog.append([*tombstones, *records_of(taken.batch, marker)])
        if is_last:
            return
        if self._confirm is not None:
            await self._confirm()
        self._positions, self._uncommitted, self._committed_at = positions, [], now
        batch = self._unapplied = self._unapplied.then(taken.batch) if self._is_behind else taken.batch
        self._is_behind = True
        fences = self._fences_in_file if self._changelog.fenced is None else self._changelog.fenced.state
        changed = () if fences == self._fences_in_file else (fences,)
        await self._thread.call(Spool.commit, batch, marker, offset, at_ms, *changed)
        self._unapplied, self._is_behind, self._fences_in_file = SpoolBatch(), False, fences
        self._committed_row = max(self._committed_row, taken.last_row)
        self._gone.difference_update(batch.deleted_rows)

    def _must_commit(self, now: float) -> bool:
        """Whether a commit is due although nothing has changed."""
        fenced = self._changelog.fenced
        return fenced is not None and (bool(fenced.fences.unmended) or now - self._committed_at >= _COMMIT_EVERY_S)

    def _removable_fences(self) -> list[bytes]:
        """Keys of fences that nobody needs any more."""
        fenced = self._changelog.fenced
        return [] if fenced is None else [fence_key(epoch) for epoch in fenced.fences.removable()]

    async def _mend(self) -> None:
        """Writes again what void records have overwritten, as the file has it: so the file must have all. The marker
        is left to the commit, if there was none before. What cannot be read is left to the next commit: this one must
        not fail before it has written what was taken."""
        fenced = self._changelog.fenced
        if fenced is None or self._is_behind:
            return
        keys = fenced.fences.unmended
        for start in range(0, len(keys), _MENDED_AT_ONCE):
            try:
                found = await self._thread.call(Spool.records, keys[start : start + _MENDED_AT_ONCE])
            except SpoolError as error:
                self._counts["spool_failed_read"] += 1
                self.outage.failed("mend", error)
                return
            records = [(key, value) for key, value in found if value is not None or key != MARKER_KEY]
            if records:
                await self._changelog.append(records)
        self.outage.mended("mend")

    def take_done(self) -> list[tuple[Message, list[Instruction]]]:
        """Takes out of what the file could not take what has come and gone: messages to be relinquished."""
        done, rows = self._unapplied.take_done()
        if rows:  # they are in the changelog, with their end, and never come to the file
            self._unapplied.deleted_rows = [row for row in self._unapplied.deleted_rows if row not in rows]
            self._gone -= rows
        self._batch.forgotten.extend(number for _, _, numbers in done for number in numbers)
        return [(message, instructions) for message, instructions, _ in done]

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def file(self) -> Spool:
        """To bring it up to the changelog's end, before `start`."""
        return self._thread.spool

    async def start(self, leftovers: Leftovers) -> dict[str, bytes]:
        """Once the file is at the changelog's end: the positions that were last committed, none if nothing was."""
        marker = (await self._thread.call(Spool.state)).marker
        self._last_mid, self._last_row = leftovers.last_mid, leftovers.last_row
        self._committed_row, self._uncommitted = self._last_row, leftovers.keys
        self._positions = {} if marker is None else marker.positions
        return dict(self._positions)

    async def take_up(self, earlier: EarlierShard) -> dict[str, bytes]:
        """Commits what the file of an earlier version has for the shard; the positions in it."""
        self._last_mid, self._last_row = earlier.last_mid, earlier.last_row
        self._batch = earlier.batch
        await self.commit(self.take(), earlier.positions)
        return dict(self._positions)

    def number_above(self, row: int) -> None:
        """Rows that are given from now on have higher numbers; a session log may know of some that are not here."""
        self._last_row = max(self._last_row, row)
        self._committed_row = max(self._committed_row, row)

    async def contents(self) -> SpoolContents:
        """What a start needs besides the positions, in one turn of the thread. Raises SpoolError."""
        return await self._thread.call(Spool.contents)

    async def finished(self) -> list[FinishedMessage]:
        """Messages whose last row is gone. Raises SpoolError."""
        return await self._thread.call(Spool.finished)

    async def expired(self, now_ms: int, after_row: int) -> list[SpooledDelivery]:
        """The first rows, some of them, behind `after_row` whose message's time is over. Raises SpoolError."""
        return await self._thread.call(Spool.expired, now_ms, after_row)

    async def bundle_rows(
        self, spool_key: str, after_row: int, limit: int, scan: int
    ) -> tuple[list[SpooledDelivery], int]:
        """See :meth:`Spool.bundle_rows`. Raises SpoolError."""
        return await self._thread.call(Spool.bundle_rows, spool_key, after_row, limit, scan)

    async def rows_of_bundles(self, spool_key: str, ids: Sequence[str]) -> list[SpooledDelivery]:
        """See :meth:`Spool.rows_of_bundles`. Raises SpoolError."""
        return await self._thread.call(Spool.rows_of_bundles, spool_key, ids)

    async def load(self, spool_key: str, after_row: int, limit: int) -> list[SpooledDelivery]:
        """Up to `limit` rows of a session behind `after_row`, in order. While reading fails it is tried again: whoever
        waits for it waits on (G9). Raises SpoolError only when the gateway stops, ShardLost after `end`."""
        pause_s, longest_s = _READ_AGAIN_S
        while True:
            try:
                page = await self._thread.call(Spool.load, spool_key, after_row, limit)
            except SpoolError as error:
                self._counts["spool_failed_read"] += 1
                self.outage.failed(spool_key, error)
                if self._over.is_set():
                    raise ShardLost(self._shard) from error
                if self._stopping.is_set():
                    raise
            else:
                self.outage.mended(spool_key)
                return page
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _pause(self, seconds: float) -> None:
        """Shorter if the gateway stops, or after `end`."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stopping, self._over)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def delivery_of(self, spooled: SpooledDelivery, now: float) -> Delivery:
        """The delivery in a row; it holds its message by itself. `now` in seconds since the epoch."""
        pending = PendingMessage(spooled.message, self._shard, -1, now, spooled.instructions, spooled=True)
        return Delivery(
            client_of(spooled.session),
            pending,
            spooled.qos,
            spooled.retain,
            spooled.subscription_ids,
            dup=spooled.dup,
            row=spooled.row,
        )

    @property
    def size(self) -> SpoolSize:
        """How much the spool holds; asks no thread."""
        return self._thread.size

    def end(self) -> None:
        """The shard is another home's, or is to be: nobody waits any more for a file that cannot be read."""
        self._over.set()

    def close(self) -> None:
        """Closes the file."""
        self._over.set()
        self._thread.close()
