"""The changelog of the spools on Kafka: writing the commits of one shard, and reading at a start what its file lacks.

A gateway's file is a cache. One that is gone, or so old that Kafka may have dropped tombstones it has not read, is made
again from the beginning of the topic.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import structlog

from gateway.bus import Bus
from gateway.errors import BusError
from gateway.record import Record as BusRecord
from gateway.shard.spool import Spool
from gateway.shard.spool_records import Record, batch_of
from gateway.shard.spool_tables import Leftovers
from schemas.errors import RecordError
from schemas.topics import DAY_MS

_TRUSTED_MS = DAY_MS // 2
"""How old the last commit in a file may be: half as long as the topic keeps tombstones (`delete.retention.ms`)."""

_AT_ONCE = 1_000
"""Records that are applied in one transaction."""

log = structlog.get_logger(__name__)


class Changelog:
    """Writes the commits of one shard to its partition of `topic`."""

    def __init__(self, bus: Bus, topic: str, shard: int) -> None:
        self._bus = bus
        self._topic = topic
        self._shard = shard

    async def append(self, records: list[Record]) -> tuple[int, int]:
        """Returns once they are stored: the offset behind the last, and when Kafka appended it, ms since the epoch.
        Raises BusError if Kafka refuses them."""
        stored: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

        def done(error: Any, record: Any) -> None:
            if stored.done():  # nobody waits any more
                return
            if error is not None:
                stored.set_exception(BusError(f"cannot write to the topic {self._topic}: {error.str()}"))
            else:
                stored.set_result((record.offset() + 1, record.timestamp()[1]))

        self._bus.produce_all(self._topic, self._shard, records, done)
        return await stored


class CaughtUp(NamedTuple):
    """`leftovers`: what nobody has committed, by shard; `read`: how many records were read; `malformed`: those that
    were left out, each with what is wrong with it."""

    leftovers: dict[int, Leftovers]
    read: int
    malformed: list[tuple[BusRecord, str]]


async def catch_up(bus: Bus, topic: str, shards: int, files: Mapping[int, Spool], now_ms: int) -> CaughtUp:
    """Brings the files of some of the `shards` up to the changelog's end, before anybody else uses them. Raises
    BusError, SpoolError."""
    ends = await bus.end_offsets(topic, shards)
    start = {}
    for shard, file in files.items():
        state = file.state()
        is_old = state.marker is not None and now_ms - state.at_ms > _TRUSTED_MS
        if is_old or state.offset > ends[shard]:
            log.info("the spool's file is made again from Kafka", shard=shard, too_old=is_old)
            file.wipe()
        start[shard] = file.state().offset
    chunks: dict[int, list[BusRecord]] = {shard: [] for shard in files}
    malformed: list[tuple[BusRecord, str]] = []
    read = 0

    def apply(shard: int) -> None:
        records, chunks[shard] = chunks[shard], []
        if not records:
            return

        def left_out(index: int, error: RecordError) -> None:
            malformed.append((records[index], str(error)))

        batch, marker = batch_of([(r.key() or b"", r.value()) for r in records], left_out)
        files[shard].commit(batch, marker, records[-1].offset() + 1, records[-1].timestamp()[1])

    def take(record: BusRecord) -> None:
        nonlocal read
        read += 1
        chunk = chunks[record.partition()]
        chunk.append(record)
        if len(chunk) >= _AT_ONCE:
            apply(record.partition())

    await bus.read(topic, start, take)
    for shard in files:
        apply(shard)
    return CaughtUp({shard: file.catch_up_end() for shard, file in files.items()}, read, malformed)
