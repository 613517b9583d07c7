"""The subscriber for programs without asyncio: the same, on an event loop in a thread of its own.

with SyncFeedSubscriber("flight", kafka="broker:9092", name="desk-1", state="desk-1.feed") as feed:
    for item in feed:
        ...
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from edge.feed_subscriber.errors import FeedClosed
from edge.feed_subscriber.items import FeedItem
from edge.feed_subscriber.options import FeedOptions
from edge.feed_subscriber.subscriber import FeedSubscriber

T = TypeVar("T")


class SyncFeedSubscriber:
    """A context manager and iterator. Arguments and errors are those of :class:`FeedSubscriber`; without `with`, call
    :meth:`close`. `snapshot` is asynchronous here too, and runs on the subscriber's loop."""

    def __init__(self, feed: str, **options: Unpack[FeedOptions]) -> None:
        self._subscriber = FeedSubscriber(feed, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="waystation-feed-loop", daemon=True)
        self._is_closed = False
        self._thread.start()
        try:
            self._call(self._subscriber.__aenter__())
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`FeedSubscriber.close`."""
        if not self._is_closed:
            try:
                self._call(self._subscriber.close())
            finally:
                self._stop()

    def __iter__(self) -> Iterator[FeedItem]:
        return self

    def __next__(self) -> FeedItem:
        """See :meth:`FeedSubscriber.__anext__`; blocks until the next item is there."""
        if self._is_closed:
            raise StopIteration
        try:
            return self._call(self._next())
        except StopAsyncIteration:
            raise StopIteration from None

    def commit(self, item: FeedItem) -> None:
        """See :meth:`FeedSubscriber.commit`."""
        self._call(self._subscriber.commit(item))

    @property
    def counts(self) -> Mapping[str, int]:
        """See :attr:`FeedSubscriber.counts`."""
        return self._subscriber.counts

    async def _next(self) -> FeedItem:
        return await anext(self._subscriber)

    def _call(self, action: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            action.close()
            raise FeedClosed("the subscriber is closed")
        future = asyncio.run_coroutine_threadsafe(action, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # a thread that is interrupted does not leave it behind
            raise

    def _stop(self) -> None:
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
