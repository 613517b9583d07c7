"""What the parts of a home share."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client import Histogram

from gateway import durations
from gateway.bus import Bus
from gateway.errors import SpoolError
from gateway.shard.message_presence import MessagePresence
from gateway.shard.outage import SpoolOutage
from gateway.shard.progress import ProgressReporter
from gateway.shard.retained import RetainedMessages
from gateway.shard.routes import RouteInterest
from gateway.shard.session import Session
from gateway.shard.shard import Shard
from gateway.shard.spool import Spool, SpoolSize
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.system_topics import SystemTopics
from gateway.shard.work import Work
from schemas.identity import shard_of
from schemas.settings import Settings
from schemas.topics import Topics

_READ_AGAIN_S = (0.25, 5.0)
"""The first and the longest pause before a read of the spool is tried again."""

R = TypeVar("R")


class SpoolThread:
    """Runs the spool's calls one after the other on a thread of its own: SQLite's checkpoints stall for 100 ms."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._executor = ThreadPoolExecutor(1, "spool")

    async def call(self, method: Callable[..., R], *arguments: Any) -> R:
        """`method` is a function of :class:`Spool`, for example `Spool.load`."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, method, self._spool, *arguments)

    @property
    def size(self) -> SpoolSize:
        """How much the spool holds; asks no thread."""
        return self._spool.size

    def close(self) -> None:
        self._executor.shutdown(wait=True)
        self._spool.close()


@dataclass
class HomeContext:
    """`clock` gives seconds since the epoch; `counts` are what the metrics show; `batch` is the next spool commit.

    `in_flight_bytes` are the payloads of publishes that Kafka has not acknowledged yet; `published_to` are the offsets
    of `ingress`, by partition, up to which this gateway's own publishes are acknowledged.

    `unsettled` are sessions that may have something for the next checkpoint (:attr:`Session.is_unsettled`).

    `wills_settling` are sessions whose published will the session log may not know of yet: a restart must find it on
    `ingress`. `outage` says whether the spool works; `stopping` is set when the home stops.

    `boot` is when this process began, µs since the epoch, and greater than that of all earlier ones with this spool,
    whatever the clock says (:class:`gateway.shard.recovery.Recovery`); `last_epoch` the last epoch it has given, and
    `last_offer` the last number of a retained message's sending.

    Of the spool's rows those up to `committed_row` are there; those in `gone_rows` are finished, but still there until
    their deletion is committed.
    """

    settings: Settings
    topics: Topics
    bus: Bus
    spool: SpoolThread
    clock: Callable[[], float]
    reporter: ProgressReporter
    routes: RouteInterest
    retained: RetainedMessages
    message_presence: MessagePresence
    shards: list[Shard]
    on_fatal: Callable[[Exception], None]
    batch: SpoolBatch = field(default_factory=SpoolBatch)
    unsettled: set[Session] = field(default_factory=set)
    wills_settling: set[Session] = field(default_factory=set)
    outage: SpoolOutage = field(default_factory=SpoolOutage)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    counts: Counter[str] = field(default_factory=Counter)
    gone_rows: set[int] = field(default_factory=set)
    system: SystemTopics = field(default_factory=SystemTopics)
    work: Work = field(default_factory=Work)
    checkpoint_seconds: Histogram = field(default_factory=durations.checkpoint)
    in_flight_bytes: int = 0
    published_to: dict[int, int] = field(default_factory=dict)
    boot: int = 0
    last_epoch: int = 0
    last_offer: int = 0
    committed_row: int = 0
    next_mid: int = 0
    next_row: int = 0

    def shard_for(self, client: str) -> Shard:
        return self.shards[shard_of(client, len(self.shards))]

    def session(self, client: str) -> Session | None:
        return self.shard_for(client).sessions.get(client)

    async def read_spool(self, what: str, method: Callable[..., R], *arguments: Any) -> R:
        """Reads from the spool, and again while that fails: whoever waits for `what` waits on (G9). Raises SpoolError
        only when the home stops."""
        pause_s, longest_s = _READ_AGAIN_S
        while True:
            try:
                result = await self.spool.call(method, *arguments)
            except SpoolError as error:
                self.counts["spool_failed_read"] += 1
                self.outage.failed(what, error, self.clock())
                if self.stopping.is_set():
                    raise
            else:
                self.outage.mended(what, self.clock())
                return result
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def new_epoch(self) -> int:
        """For a connection: the time, µs since the epoch, but greater than all before it, also of earlier processes:
        a clock that is set back must not make an earlier connection of a client count for more (R12)."""
        self.last_epoch = max(int(self.clock() * 1e6), self.boot, self.last_epoch + 1)
        return self.last_epoch

    def new_offer(self) -> int:
        """For sending a retained message on SUBSCRIBE: a number as :meth:`new_epoch` gives them."""
        self.last_offer = max(int(self.clock() * 1e6), self.boot, self.last_offer + 1)
        return self.last_offer

    def new_row(self) -> int:
        self.next_row += 1
        return self.next_row

    def new_mid(self) -> int:
        self.next_mid += 1
        return self.next_mid
