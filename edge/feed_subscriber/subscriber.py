"""The subscriber that applications use: one stream of the two copies of a feed, with its gaps (S3, S6).

    async with FeedSubscriber("flight", kafka="broker:9092", name="desk-1", state="desk-1.feed") as feed:
        async for item in feed:
            ...

Guarantees, as long as the state's file and the log exist: of each source stream each message is given in order, or
marked late, or reported lost. What the application has committed it does not see again; the rest it may. An item is
committed by :meth:`FeedSubscriber.commit`, or unless `auto_commit` is off, when the next one is asked for.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self, Unpack

from edge.answers import Changes
from edge.client.client import Client
from edge.client.store_thread import opened, released
from edge.completion import completed
from edge.feed_subscriber.administration import Administration
from edge.feed_subscriber.committer import Committer
from edge.feed_subscriber.errors import FeedClosed, NotCommitted
from edge.feed_subscriber.items import FeedItem
from edge.feed_subscriber.options import FeedOptions, SubscriberOptions
from edge.feed_subscriber.source import FeedSource
from edge.feed_subscriber.state import MemoryState, StateStore

_LEAVE_S: Final = 2.0


class FeedSubscriber:
    """An asynchronous context manager and iterator. `options` are the fields of :class:`.options.SubscriberOptions`:
    `kafka` or `gateway` at least. Raises ValueError; entering raises FeedUnavailable and StoreError."""

    def __init__(self, feed: str, **options: Unpack[FeedOptions]) -> None:
        self._options = SubscriberOptions(feed, **options)
        self._administration = self._make_administration()
        self._changes = Changes()
        self._failure: Exception | None = FeedClosed("the subscriber is not open: use `async with`")
        self._was_opened = False
        self._last = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise FeedClosed("a subscriber can be opened once: make another one")
        self._was_opened = True
        self._thread = ThreadPoolExecutor(1, "waystation-feed-state")
        self._store, stored = await opened(self._thread, self._open_store, lambda store: store.recover())
        try:
            self._source = self._make_source()
            await self._source.open(stored)
        except BaseException:
            await released(self._thread, self._store)
            raise
        limits = self._options.limits
        self._committer = Committer(
            self._thread,
            self._store,
            self._source.changes,
            limits.commit_ms / 1000,
            self._source.stored,
            self._fail,
        )
        self._failure = None
        self._tasks = [asyncio.create_task(self._committer.run())]
        if self._administration is not None:
            self._tasks.append(asyncio.create_task(self._administration.run()))
        try:
            await self._committer.durable()  # where it begins, before anything is given
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops reading, and writes what is committed. What was given and is not committed comes again. It ends even if
        the caller is cancelled, and may be called again: all return once the file is released."""
        if self._closing is None and self._tasks:
            self._closing = asyncio.create_task(self._close(self._tasks))
        if self._closing is not None:
            await completed(self._closing)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        has_failed = self._failure is not None
        self._failure = self._failure or FeedClosed("the subscriber is closed")
        self._changes.wake()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        try:
            if not has_failed:
                await self._committer.durable()
        finally:
            try:
                await self._source.close()
            finally:
                await released(self._thread, self._store)
                await self._leave()

    # -- items ---------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FeedItem:
        """The next item. Ends when the subscriber is closed; raises the error that ended it, and NotCommitted."""
        if self._options.auto_commit and self._last and self._failure is None:
            self._source.commit(self._last)
        await self._changes.until(lambda: self._failure is not None or self._has_next())
        if isinstance(self._failure, FeedClosed):
            raise StopAsyncIteration if self._was_opened else self._failure
        if self._failure is not None:
            raise self._failure
        outputs = self._source.outputs
        if outputs.uncommitted >= self._options.limits.uncommitted:
            raise NotCommitted(
                f"{outputs.uncommitted} items were given and none is committed: call commit(item) now and then"
            )
        item = outputs.next()
        assert item is not None
        self._last = item.ordinal
        self._source.taken()
        return item

    async def commit(self, item: FeedItem) -> None:
        """Returns once it is durable that the application is done with this item, and with all that were given before.
        Raises StoreError, or the error that ended the subscriber."""
        if self._failure is not None:
            raise self._failure
        self._source.commit(item.ordinal)
        await self._committer.durable()

    @property
    def counts(self) -> Mapping[str, int]:
        """What came and was not given, by reason: duplicate, late, expired, refused (a limit), malformed."""
        return dict(self._source.counts)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _has_next(self) -> bool:
        return len(self._source.outputs) > 0

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._changes.wake()

    def _open_store(self) -> StateStore:
        options = self._options
        if options.state is None:
            return MemoryState()
        from edge.feed_subscriber.sqlite_state import SqliteState

        source = "kafka" if options.kafka else "gateway"
        return SqliteState(options.state, options.name, options.feed, source, options.limits.merge)

    def _make_source(self) -> FeedSource:
        options = self._options
        streams = None if options.streams is None else frozenset(options.streams)
        if options.gateway is not None:
            from edge.feed_subscriber.gateway_source import GatewaySource

            is_client = isinstance(options.gateway, Client)
            return GatewaySource(
                options.feed,
                options.gateway if isinstance(options.gateway, Client) else self._make_client(options.gateway),
                owns_client=not is_client,
                streams=streams,
                limits=options.limits,
                changed=self._changes.wake,
                fail=self._fail,
            )
        from edge.feed_subscriber.kafka_source import KafkaSource

        return KafkaSource(
            options.feed,
            options.brokers(),
            options.kafka_options,
            options.prefix,
            options.mode,
            options.start,
            streams,
            options.limits,
            options.snapshot,
            self._changes.wake,
            self._fail,
        )

    def _make_client(self, address: str) -> Client:
        """A client of the gateway, whose session is on disk beside the state."""
        state = self._options.state
        store = None if state is None else Path(f"{state}.session")
        return Client(client_id=self._options.name, connect_points=[address], store=store, tls=self._options.tls)

    def _make_administration(self) -> Administration | None:
        options = self._options
        if options.administration is None:
            return None
        return Administration(
            options.administration, options.feed, options.name, options.mode, options.authorization, options.tls
        )

    async def _leave(self) -> None:
        if self._administration is not None:
            try:
                async with asyncio.timeout(_LEAVE_S):
                    await self._administration.leave()
            except TimeoutError:
                return
