"""The changelog of the spools on Kafka: writing the commits of one shard, and reading at a start what its file lacks.

A gateway's file is a cache. One that is gone, or so old that Kafka may have dropped tombstones it has not read, is made
again from the beginning of the topic.

Where gateways share shards, somebody who has lost the shard may still write to it. Its records behind the owner's fence
are void, but compaction takes them for the last of their keys, so the owner must know them and write those keys again.
It does not read along for that, since all that is spooled would come back. Offsets tell: as long as the owner's records
follow each other without a gap, nobody else has written. If there is a gap it reads what stands in it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import structlog

from gateway.bus import Bus
from gateway.errors import BusError, GatewayError, ShardLost, ShardTooNew, SpoolError
from gateway.record import Record as BusRecord
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.spool import Spool
from gateway.shard.spool_records import Record, batch_of
from gateway.shard.spool_tables import Leftovers
from gateway.shard.start_steps import Steps
from schemas.envelope import Headers
from schemas.errors import NewerVersion
from schemas.fences import epoch_headers
from schemas.topics import DAY_MS

_TRUSTED_MS = DAY_MS // 2
"""How old the last record in a file may be: half as long as the topic keeps tombstones (`delete.retention.ms`)."""

_AT_ONCE = 1_000
"""Records that are applied in one transaction."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Changelog:
    """Writes the commits of one shard to its partition of `topic`. `fenced` knows what others have written there, None
    if nobody else does."""

    def __init__(self, bus: Bus, topic: str, shard: int) -> None:
        self._bus = bus
        self._topic = topic
        self._shard = shard
        self._headers: Headers | None = None
        self._next = 0
        self.fenced: FencedPartition | None = None

    def begin(self, epoch: int, fenced: FencedPartition | None, offset: int) -> None:
        """Before the first record: the writer's epoch, and what was read up to `offset`."""
        self._headers, self.fenced, self._next = epoch_headers(epoch), fenced, offset

    async def append(self, records: list[Record]) -> tuple[int, int]:
        """Returns once they are stored: the offset behind the last, and when Kafka appended it, ms since the epoch.
        Raises BusError if Kafka refuses them, ShardLost if another owner's fence stands before them."""
        stored: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

        def done(error: Any, record: Any) -> None:
            if stored.done():  # nobody waits any more
                return
            if error is not None:
                stored.set_exception(BusError(f"cannot write to the topic {self._topic}: {error.str()}"))
            else:
                stored.set_result((record.offset() + 1, record.timestamp()[1]))

        self._bus.produce_all(self._topic, self._shard, records, done, self._headers)
        end, at_ms = await stored
        if self.fenced is not None:
            await self._look_between(self.fenced, records, end)
        return end, at_ms

    async def _look_between(self, fenced: FencedPartition, records: list[Record], end: int) -> None:
        """What others have written before `end`, since the last time."""
        if end - len(records) == self._next:
            for key, _ in records:
                fenced.wrote(key)
        else:

            def take(record: BusRecord) -> None:
                if record.offset() < end:
                    fenced.take(record)

            try:
                await self._bus.read(self._topic, {self._shard: self._next}, take)
            except BusError as error:  # the next commit looks again, and whether this one counts is asked otherwise
                log.warning("cannot read what others wrote to a spool", shard=self._shard, reason=str(error))
                return
        self._next = end
        if fenced.is_superseded:
            raise ShardLost(self._shard)


class ChangelogApplier:
    """Brings the file of one shard forward by what is read from its changelog, in its order. Whoever calls it has the
    file to itself. `malformed` gets each record that was left out, with what is wrong with it. `fenced` says what
    counts, and goes on where the file is.

    A chunk is one transaction, and may end anywhere, also between the records of a commit
    (:mod:`gateway.shard.spool_records`)."""

    def __init__(
        self,
        shard: int,
        file: Spool,
        malformed: Callable[[BusRecord, str], None],
        fenced: FencedPartition | None = None,
    ) -> None:
        self._shard = shard
        self._file = file
        self._malformed = malformed
        self._chunk: list[BusRecord] = []
        self._last: BusRecord | None = None
        self._is_too_new = False
        self.fenced = fenced or FencedPartition(shard)

    def begin(self, end: int | None, now_ms: int) -> int:
        """Empties the file if it cannot be trusted; returns the offset from which to read. `end`: of the changelog,
        None if that is looked at later. Raises SpoolError."""
        state = self._file.state()
        is_new = state.marker is None and not state.offset
        is_old = not is_new and now_ms - state.at_ms > _TRUSTED_MS
        if is_old or (end is not None and state.offset > end):
            log.info("the spool's file is made again from Kafka", shard=self._shard, too_old=is_old)
            self._file.wipe()
        self.fenced.restore(*self._file.fences())
        return self._file.state().offset

    def take(self, record: BusRecord) -> None:
        """The next record; applied with a later one, or by `flush`. Raises SpoolError."""
        self._last = record
        if self.fenced.take(record) != "counts":
            return
        self._chunk.append(record)
        if len(self._chunk) >= _AT_ONCE and not self._is_too_new:
            try:
                self.flush()
            except ShardTooNew:  # what follows may replace it
                self._is_too_new = True

    def flush(self) -> None:
        """Applies what was taken. Raises SpoolError; then it has applied nothing, and does it the next time. Raises
        ShardTooNew if a later release has written some of it: nothing can be applied without that."""
        records, last = self._chunk, self._last
        if last is None:
            return
        left_out: list[tuple[BusRecord, str]] = []
        try:
            batch, marker = batch_of(
                [(r.key() or b"", r.value()) for r in records],
                lambda index, error: left_out.append((records[index], str(error))),
            )
        except NewerVersion as error:
            raise ShardTooNew(self._shard, "spool", str(error)) from error
        fences = self.fenced.state if self.fenced.fences.epoch else None
        self._file.commit(batch, marker, last.offset() + 1, last.timestamp()[1], fences)
        self._chunk, self._last, self._is_too_new = [], None, False
        for record, reason in left_out:
            self._malformed(record, reason)


class CaughtUp(NamedTuple):
    """`leftovers`: what nobody has committed, by shard; `read`: how many records were read; `malformed`: those that
    were left out, each with what is wrong with it. `fenced` has read up to `ends`, by shard. `failed`: shards whose
    files could not be brought up to the end, and why."""

    leftovers: dict[int, Leftovers]
    read: int
    malformed: list[tuple[BusRecord, str]]
    fenced: dict[int, FencedPartition]
    ends: dict[int, int]
    failed: dict[int, GatewayError]


async def catch_up(
    bus: Bus,
    topic: str,
    files: Mapping[int, Spool],
    now_ms: int,
    reader_of: Callable[[int], FencedPartition] = FencedPartition,
    steps: Steps | None = None,
) -> CaughtUp:
    """Brings the files of shards up to the changelog's end, before anybody else uses them; `reader_of` a shard says
    what counts there. Raises BusError."""
    malformed: list[tuple[BusRecord, str]] = []
    failed: dict[int, GatewayError] = {}
    read = 0

    def applier_of(shard: int) -> ChangelogApplier:
        def left_out(record: BusRecord, reason: str) -> None:
            malformed.append((record, reason))

        return ChangelogApplier(shard, files[shard], left_out, reader_of(shard))

    def each(shards: Iterable[int], work: Callable[[int], T]) -> dict[int, T]:
        """What comes of it for each shard that has not failed yet."""
        found: dict[int, T] = {}
        for shard in shards:
            if shard not in failed:
                try:
                    found[shard] = work(shard)
                except (SpoolError, ShardTooNew) as error:
                    failed[shard] = error
        return found

    def take(record: BusRecord) -> None:
        nonlocal read
        read += 1
        if steps is not None:
            steps.done += 1
        shard = record.partition()
        if shard not in failed:
            try:
                appliers[shard].take(record)
            except SpoolError as error:
                failed[shard] = error

    appliers = {shard: applier_of(shard) for shard in files}
    start = each(files, lambda shard: appliers[shard].begin(None, now_ms))
    ends = await bus.read(topic, start, take)
    ahead = [shard for shard, offset in start.items() if ends[shard] < offset]
    if ahead:  # those have more than there is: the changelog is another one
        appliers |= {shard: applier_of(shard) for shard in ahead}
        ends |= await bus.read(topic, each(ahead, lambda shard: appliers[shard].begin(ends[shard], now_ms)), take)
    each(files, lambda shard: appliers[shard].flush())
    leftovers = each(files, lambda shard: files[shard].catch_up_end())
    return CaughtUp(leftovers, read, malformed, {n: applier.fenced for n, applier in appliers.items()}, ends, failed)
