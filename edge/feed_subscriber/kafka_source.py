"""Joins the core with its reader and its searches on the event loop (S3, S6)."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from edge.answers import Changes
from edge.client.errors import StoreForeign
from edge.client.kafka_options import KafkaOptions
from edge.feed_subscriber.batch import Search
from edge.feed_subscriber.core import SubscriberCore
from edge.feed_subscriber.errors import FeedUnavailable
from edge.feed_subscriber.following import Command
from edge.feed_subscriber.items import Gap
from edge.feed_subscriber.kafka_reader import KafkaReader, RegistryEntry, Report
from edge.feed_subscriber.kafka_search import KafkaSearch
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.options import Snapshot, Start
from edge.feed_subscriber.outputs import Outputs
from edge.feed_subscriber.replay import ReadPosition
from edge.feed_subscriber.state import StateChange, StoredState
from feeds.message import FEEDS, partition_of, topic_of
from feeds.registry_records import decode
from schemas.errors import RecordError
from schemas.feed_words import SubscriberMode
from schemas.topics import Topics

_log: Final = logging.getLogger("waystation.feeds")


class KafkaSource:
    """Implements :class:`edge.feed_subscriber.source.FeedSource`. `changed` is called when there may be more items,
    `fail` with an error that ends the reading."""

    def __init__(
        self,
        feed: str,
        brokers: list[str],
        options: KafkaOptions,
        prefix: str,
        mode: SubscriberMode,
        start: Start,
        streams: frozenset[str] | None,
        limits: FeedLimits,
        snapshot: Snapshot | None,
        changed: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._feed, self._mode, self._start, self._limits = feed, mode, start, limits
        self._snapshot, self._changed, self._report_failure = snapshot, changed, fail
        self._failure: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._topic = topic_of(prefix, feed)
        self._reader = KafkaReader(
            brokers,
            options,
            self._topic,
            Topics(prefix).feeds,
            streams,
            limits.connect_timeout_s,
            post=lambda report: self._soon(self._take, report),
            fail=lambda error: self._soon(self._fail, error),
        )
        self._search = KafkaSearch(brokers, options, self._topic, limits.connect_timeout_s, limits.search_records)
        self._core: SubscriberCore
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = Changes()
        self._is_paused = self._is_closed = False

    @property
    def outputs(self) -> Outputs:
        return self._core.outputs

    @property
    def counts(self) -> Mapping[str, int]:
        """What was not given, by reason."""
        return self._core.counts

    async def open(self, stored: StoredState) -> None:
        run = self._loop.run_in_executor
        await run(None, self._reader.open)
        try:
            self._check(stored)
            is_fresh = not stored.partitions
            begins = self._start if is_fresh and not isinstance(self._start, str) else {}
            fresh = await self._fresh() if is_fresh else {}
            self._core = SubscriberCore(
                self._feed,
                self._reader.partitions,
                self._limits,
                self._mode,
                stored,
                time.monotonic(),
                begins,
                has_snapshots=self._snapshot is not None,
            )
            for entry in self._reader.known:
                self._take_registry(entry, time.monotonic())
            self._obey(self._core.start(fresh))
            self._reader.start()
            async with asyncio.timeout(self._limits.connect_timeout_s):
                await self._starting.until(lambda: self._core.is_started or self._failure is not None)
            if self._failure is not None:
                raise self._failure
        except TimeoutError:
            await self.close()
            raise FeedUnavailable(f"{self._topic} is not read within {self._limits.connect_timeout_s:g} s") from None
        except BaseException:
            await self.close()
            raise

    def taken(self) -> None:
        if self._is_paused and len(self._core.outputs) <= self._limits.items // 2:
            self._is_paused = False
            self._reader.pause(False)

    def commit(self, ordinal: int) -> None:
        self._core.commit(ordinal)

    def changes(self) -> StateChange | None:
        return self._core.changes()

    def stored(self) -> None:
        """Nothing to do: Kafka keeps no position for us."""

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._loop.run_in_executor(None, self._reader.stop)
        await self._search.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check(self, stored: StoredState) -> None:
        if any(partition >= self._reader.partitions for partition in stored.partitions):
            raise StoreForeign(
                f"the state has positions of {max(stored.partitions) + 1} partitions, and {self._topic} has "
                f"{self._reader.partitions}: was it made anew? Move the state away to start anew"
            )

    async def _fresh(self) -> dict[int, ReadPosition]:
        """Where a subscriber without a state begins."""
        run = self._loop.run_in_executor
        at_end = self._start != "beginning"
        found = dict(await run(None, lambda: self._reader.begin_positions(at_end=at_end)))
        if not isinstance(self._start, str):
            for stream, number in self._start.items():
                for feed in FEEDS:
                    partition = partition_of(feed, stream, self._reader.partitions)
                    offset = await self._search.find(partition, stream, number)
                    if offset < found[partition].offset:
                        found[partition] = ReadPosition(offset, 0)
        return found

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        """From the reader's thread."""
        if not self._is_closed:
            try:
                self._loop.call_soon_threadsafe(self._run, call, *arguments)
            except RuntimeError:  # the loop is closed
                self._is_closed = True

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._starting.wake()
        self._report_failure(error)

    def _run(self, call: Callable[..., None], *arguments: object) -> None:
        """What goes wrong here ends the subscriber: what the core knows may be half of it."""
        try:
            call(*arguments)
        except Exception as error:
            self._fail(error)

    def _take(self, report: Report) -> None:
        now, core = time.monotonic(), self._core
        for one in report.started:
            core.started(*one)
        for entry in report.registry:
            self._take_registry(entry, now)
        for batch in report.batches:
            core.take_batch(batch, now)
        self._reader.acknowledge()
        if not self._is_paused and len(core.outputs) >= self._limits.items:
            self._is_paused = True
            self._reader.pause(True)
        self._tick(report.is_read)
        if report.started:
            self._starting.wake()

    def _take_registry(self, entry: RegistryEntry, now: float) -> None:
        try:
            key, record = decode(entry.key, entry.value)
        except RecordError:
            self._core.counts["malformed"] += 1
        else:
            self._core.take_registry(key, record, now, is_old=entry.is_old)

    def _tick(self, is_read: bool | None = None) -> None:
        """What time does, and when to look again."""
        core = self._core
        self._obey(core.tick(time.monotonic(), is_read=is_read))
        search = core.next_search()
        if search is not None:
            self._spawn(self._searched(search))
        if self._snapshot is not None:
            for gap in core.take_gaps():
                self._spawn(self._ask(self._snapshot, gap))
        if self._timer is not None:
            self._timer.cancel()
        due_s = core.due_s()
        self._timer = None if due_s is None or self._is_closed else self._loop.call_later(due_s, self._run, self._tick)
        self._changed()

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            self._reader.command(command)

    def _spawn(self, action: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(action)
        self._tasks.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._fail(error)

    async def _searched(self, wanted: Search) -> None:
        self._core.take_search(await self._search.search(wanted), time.monotonic())
        self._tick()

    async def _ask(self, snapshot: Snapshot, gap: Gap) -> None:
        found: Mapping[int, bytes] = {}
        try:
            async with asyncio.timeout(self._limits.merge.deadline_ms / 1000):
                found = _payloads(await snapshot(gap.stream, gap.first, gap.last))
        except Exception as error:  # the application's
            _log.warning("no snapshot of %s %d to %d: %r", gap.stream, gap.first, gap.last, error)
        self._core.take_snapshot(gap, found, time.monotonic())
        self._tick()


def _payloads(answer: object) -> dict[int, bytes]:
    """What an application's snapshot has returned. Raises TypeError."""
    if answer is None:
        return {}
    if not isinstance(answer, Mapping):
        raise TypeError(f"it returns payloads by number, or None, unlike {answer!r:.100}")
    for number, payload in answer.items():
        if not isinstance(number, int) or not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"it returns bytes by number, unlike {payload!r:.100} by {number!r:.100}")
    return {number: bytes(payload) for number, payload in answer.items()}
