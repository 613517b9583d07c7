"""The subscriber for programs without asyncio: the same, on an event loop in a thread of its own.

with SyncFeedSubscriber("flight", kafka="broker:9092", name="desk-1", state="desk-1.feed") as feed:
    for item in feed:
        ...
"""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self, Unpack

from edge.feed_subscriber.errors import FeedClosed
from edge.feed_subscriber.items import FeedItem
from edge.feed_subscriber.options import FeedOptions
from edge.feed_subscriber.subscriber import FeedSubscriber
from edge.loop_thread import LoopThread


class SyncFeedSubscriber:
    """A context manager and iterator. Arguments and errors are those of :class:`FeedSubscriber`; without `with`, call
    :meth:`close`. `snapshot` is asynchronous here too, and runs on the subscriber's loop."""

    def __init__(self, feed: str, **options: Unpack[FeedOptions]) -> None:
        self._subscriber = FeedSubscriber(feed, **options)
        self._loop = LoopThread("waystation-feed-loop", lambda: FeedClosed("the subscriber is closed"))
        try:
            self._loop.call(self._subscriber.__aenter__())
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`FeedSubscriber.close`."""
        if not self._loop.is_stopped:
            try:
                self._loop.call(self._subscriber.close())
            finally:
                self._loop.stop()

    def __iter__(self) -> Iterator[FeedItem]:
        return self

    def __next__(self) -> FeedItem:
        """See :meth:`FeedSubscriber.__anext__`; blocks until the next item is there."""
        if self._loop.is_stopped:
            raise StopIteration
        try:
            return self._loop.call(self._next())
        except StopAsyncIteration:
            raise StopIteration from None

    def commit(self, item: FeedItem) -> None:
        """See :meth:`FeedSubscriber.commit`."""
        self._loop.call(self._subscriber.commit(item))

    @property
    def counts(self) -> Mapping[str, int]:
        """See :attr:`FeedSubscriber.counts`."""
        return self._subscriber.counts

    async def _next(self) -> FeedItem:
        return await anext(self._subscriber)
