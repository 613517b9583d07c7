"""A standby of shards: keeps their files and session records near the end of their topics (Q7, Q9).

A takeover is a recovery. The less there is to read, the shorter it is: so a standby reads `spool[s]` into the file that
the home will have, and the last values of `sessions[s]` into memory. Both follow from the topics alone, so whoever
takes the shard over continues where the standby has stopped, and would come to the same state without it.

It must cost little while nothing happens to the owner. One consumer reads all followed shards; what it brings is
collected for a while and applied in one transaction a shard, on the thread of the spools. While that takes longer than
reading, the consumer waits.

A shard is **warm** once what was read is near the end of both partitions, and while it was near at most a second ago. A
file that cannot be written, or a changelog that a later release has written, makes the standby begin again after a
while; until then it is not warm.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import structlog

from gateway.bus import Bus
from gateway.errors import GatewayError, ShardTooNew, SpoolError
from gateway.partition_reader import Read
from gateway.record import Record
from gateway.shard.changelog import ChangelogApplier
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.lag import Lag
from gateway.shard.session_values import SessionValues
from gateway.shard.shard_spool import SpoolThread
from gateway.shard.spool import Spool
from schemas.topics import Topics

EVERY_S: Final = 0.6
"""For how long records are collected, in seconds, besides what the consumer collects."""

AT_ONCE: Final = 1_000
"""Records that are collected at most before they are applied."""

NEAR: Final = 1_000
"""Records behind the end that a recovery reads in no time."""

BEHIND_S: Final = 1.0
"""For how long a shard may be further behind and counts as warm still."""

_AGAIN_S: Final = 5.0

log = structlog.get_logger(__name__)


class _Followed:
    """One shard that is followed. Only :class:`Standbys` uses it; `spool` and `of_sessions` are records that wait to be
    applied. `sessions` is None if its records take too much memory."""

    def __init__(self, shard: int, token: int, thread: SpoolThread) -> None:
        self.shard, self.token, self.thread = shard, token, thread
        self.applier: ChangelogApplier | None = None
        self.sessions: SessionValues | None = SessionValues(FencedPartition(shard))
        self.spool: list[Record] = []
        self.of_sessions: list[Record] = []
        self.malformed: list[tuple[Record, str]] = []
        self.spool_position = 0
        self.spool_end: int | None = None
        self.sessions_end: int | None = None
        self.near_at: float | None = None
        self.spool_lag, self.sessions_lag = Lag(), Lag()

    def is_ahead_of(self, read: Read) -> bool:
        """Whether the file has more of the changelog than there is of it."""
        return read.end < self.spool_position or any(r.offset() < self.spool_position for r in read.records[:1])

    def behind(self) -> int | None:
        """Records that are not applied yet, of the partition that has more of them; None while an end is not known."""
        if self.spool_end is None or (self.sessions is not None and self.sessions_end is None):
            return None
        behind = self.spool_end - self.spool_position
        if self.sessions is not None and self.sessions_end is not None:
            behind = max(behind, self.sessions_end - self.sessions.position)
        return max(0, behind)

    def behind_s(self, now: float) -> float | None:
        """Since when it has known of records that are not applied; None while an end is not known."""
        if self.behind() is None:
            return None
        of_sessions = 0.0 if self.sessions is None else self.sessions_lag.seconds(self.sessions.position, now)
        return max(self.spool_lag.seconds(self.spool_position, now), of_sessions)

    def is_warm(self, now: float) -> bool:
        behind = self.behind()
        if behind is not None and behind <= NEAR:
            self.near_at = now
        return self.near_at is not None and now - self.near_at <= BEHIND_S

    def take_sessions(self, records: list[Record]) -> None:
        """On the thread of the spools: many records would hold up the loop."""
        if self.sessions is not None:
            for record in records:
                self.sessions.take(record)

    def apply(self, chunk: list[Record]) -> None:
        """On the thread of the spools, one transaction. Raises SpoolError."""
        assert self.applier is not None  # nothing is read before it is there
        for record in chunk:
            self.applier.take(record)
        self.applier.flush()
        self.spool_position = chunk[-1].offset() + 1


class Standbys:
    """The shards that this gateway follows. `files` has the spool of each, open; it is looked up when a shard is
    followed, and belongs to the standby until `release`. `sessions_bytes` bounds the memory of all session records:
    beyond it those of the largest shard are not kept. `clock` gives seconds since the epoch; `malformed` gets records
    of the changelog that are left out, on the loop. All methods are called on the loop."""

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        files: Mapping[int, SpoolThread],
        sessions_bytes: int,
        clock: Callable[[], float],
        malformed: Callable[[Record, str], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._topics = topics
        self._files = files
        self._sessions_bytes = sessions_bytes
        self._clock = clock
        self._malformed = malformed
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._followed: dict[int, _Followed] = {}
        self._by_token: dict[int, _Followed] = {}
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._last_token = 0
        self._waiting = 0
        self._many = asyncio.Event()
        self._applying: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader = bus.reader(self._take)

    def follow(self, shard: int) -> None:
        """Begins to keep the shard warm. No home may have its file."""
        if shard not in self._followed:
            self._begin(shard)

    def unfollow(self, shard: int) -> None:
        """Stops; the file stays as far as it is. Before a home uses it, `release` it all the same."""
        followed = self._followed.pop(shard, None)
        if followed is not None:
            self._by_token.pop(followed.token, None)
            self._waiting -= len(followed.spool) + len(followed.of_sessions)
            self._reader.unassign([(self._topics.spool, shard), (self._topics.sessions, shard)])

    async def release(self, shard: int) -> SessionValues | None:
        """Stops; afterwards the file is at rest, and a home may take it over. What was read is in it. Returns the
        session records with the position from which to read on, None if they were not kept."""
        followed = self._followed.get(shard)
        self.unfollow(shard)
        async with self._locks[shard]:
            if followed is None or followed.applier is None:
                return None
            try:
                await self._apply(followed)
            except (SpoolError, ShardTooNew) as error:  # the recovery will tell
                log.warning("a standby cannot write a spool", shard=shard, reason=str(error))
            return followed.sessions

    def is_warm(self, shard: int) -> bool:
        """Whether a takeover would have little to read."""
        followed = self._followed.get(shard)
        return followed is not None and followed.is_warm(self._loop.time())

    def followed(self) -> list[int]:
        """The shards that are followed, in order."""
        return sorted(self._followed)

    def warm(self) -> list[int]:
        """The shards that are warm, in order."""
        return sorted(shard for shard in self._followed if self.is_warm(shard))

    def behind(self, shard: int) -> int | None:
        """How many records are not applied yet; None if that is not known, or the shard is not followed."""
        followed = self._followed.get(shard)
        return None if followed is None else followed.behind()

    def behind_s(self, shard: int) -> float | None:
        """For how many seconds records have waited to be applied, 0 if there are none; None as in `behind`."""
        followed = self._followed.get(shard)
        return None if followed is None else followed.behind_s(self._loop.time())

    async def stop(self, timeout_s: float) -> None:
        """Ends all; the files are at rest afterwards. Before the bus and the spools' thread end."""
        for shard in list(self._followed):
            self.unfollow(shard)
        self._many.set()
        await self._reader.stop(timeout_s)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- beginning -----------------------------------------------------------------------------------------------------

    def _begin(self, shard: int) -> None:
        self._last_token += 1
        followed = _Followed(shard, self._last_token, self._files[shard])
        self._followed[shard] = self._by_token[followed.token] = followed
        self._spawn(self._open(followed))

    async def _open(self, followed: _Followed) -> None:
        shard = followed.shard

        def begin(file: Spool) -> tuple[ChangelogApplier, int]:
            applier = ChangelogApplier(shard, file, lambda record, reason: followed.malformed.append((record, reason)))
            return applier, applier.begin(None, int(self._clock() * 1000))

        async with self._locks[shard]:
            if not self._is_current(followed):
                return
            try:
                applier, start = await followed.thread.call(begin)
            except SpoolError as error:
                self._fail(followed, error)
                return
            followed.applier, followed.spool_position = applier, start
        if self._is_current(followed):
            self._reader.assign({(self._topics.spool, shard): start, (self._topics.sessions, shard): 0}, followed.token)

    def _fail(self, followed: _Followed, error: GatewayError) -> None:
        """The file cannot be used: the standby begins again, from where the file is then."""
        shard = followed.shard
        if not self._is_current(followed):
            return
        log.warning("a standby cannot use a spool, and tries again later", shard=shard, reason=str(error))
        self.unfollow(shard)
        idle = self._followed[shard] = _Followed(shard, 0, followed.thread)  # follows nothing, and is not warm

        def again() -> None:
            if self._followed.get(shard) is idle:
                self._begin(shard)

        self._loop.call_later(_AGAIN_S, again)

    def _is_current(self, followed: _Followed) -> bool:
        return self._by_token.get(followed.token) is followed

    async def _start_over(self, followed: _Followed) -> None:
        """The changelog ends before what the file has: it is another one."""
        async with self._locks[followed.shard]:
            if not self._is_current(followed):
                return
            log.info("the spool's file is made again from Kafka", shard=followed.shard, too_old=False)
            try:
                await followed.thread.call(Spool.wipe)
            except SpoolError as error:
                self._fail(followed, error)
                return
            if self._is_current(followed):
                self.unfollow(followed.shard)
                self._begin(followed.shard)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _take(self, reads: dict[tuple[str, int], Read]) -> asyncio.Future[Any] | None:
        """From the consumer."""
        now = self._loop.time()
        for (topic, _), read in reads.items():
            followed = self._by_token.get(read.token)
            if followed is None:
                continue
            if topic == self._topics.spool and followed.is_ahead_of(read):
                self._spawn(self._start_over(followed))
                continue
            self._waiting += len(read.records)
            if topic == self._topics.spool:
                followed.spool += read.records
                followed.spool_end = read.end
                followed.spool_lag.heard(read.end, now)
            else:
                followed.of_sessions += read.records
                followed.sessions_end = read.end
                followed.sessions_lag.heard(read.end, now)
        if not self._waiting:
            return None
        if self._applying is None:
            self._applying = self._spawn(self._apply_all())
        if self._waiting < AT_ONCE:
            return None
        self._many.set()
        return self._applying

    async def _apply_all(self) -> None:
        """Collects for a while, then applies what has come."""
        if self._waiting < AT_ONCE:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._many.wait()
        try:
            for followed in list(self._by_token.values()):
                if followed.spool or followed.of_sessions:
                    async with self._locks[followed.shard]:
                        if self._is_current(followed):
                            await self._apply_or_fail(followed)
        finally:
            self._applying = None
            self._many.clear()
            self._bound_memory()
        if self._waiting:  # it has come meanwhile
            self._applying = self._spawn(self._apply_all())

    async def _apply_or_fail(self, followed: _Followed) -> None:
        try:
            await self._apply(followed)
        except (SpoolError, ShardTooNew) as error:
            self._fail(followed, error)
        else:
            followed.is_warm(self._loop.time())

    async def _apply(self, followed: _Followed) -> None:
        """Applies what waits. The caller holds the shard's lock. Raises SpoolError."""
        spool, followed.spool = followed.spool, []
        of_sessions, followed.of_sessions = followed.of_sessions, []
        if self._is_current(followed):
            self._waiting -= len(spool) + len(of_sessions)
        if of_sessions:
            await followed.thread.call(lambda _: followed.take_sessions(of_sessions))
        for at in range(0, len(spool), AT_ONCE):  # others have a turn on the thread
            await followed.thread.call(lambda _, chunk: followed.apply(chunk), spool[at : at + AT_ONCE])
        malformed, followed.malformed = followed.malformed, []
        for record, reason in malformed:
            self._malformed(record, reason)

    def _bound_memory(self) -> None:
        """Gives up the session records of the largest shards if all together take too much."""
        while True:
            kept = [(f.sessions.size, f.shard) for f in self._by_token.values() if f.sessions is not None]
            if sum(size for size, _ in kept) <= self._sessions_bytes:
                return
            followed = self._followed[max(kept)[1]]
            log.warning("a standby keeps no session records: they take too much memory", shard=followed.shard)
            followed.sessions = None
            self._waiting -= len(followed.of_sessions)
            followed.of_sessions = []
            self._reader.unassign([(self._topics.sessions, followed.shard)])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._on_fatal(task.exception())  # type: ignore[arg-type]
