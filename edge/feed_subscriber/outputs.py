"""The items for the application, in order: those that wait, and those that were given and are not committed yet."""

from collections import deque
from collections.abc import Iterator
from typing import Any

from edge.feed_subscriber.items import FeedItem


class Outputs:
    """`produced`, `committed`: ordinals of the last of each."""

    __slots__ = ("_given", "_waiting", "committed", "produced")

    def __init__(self) -> None:
        self._waiting: deque[FeedItem] = deque()
        self._given: deque[FeedItem] = deque()
        self.produced = self.committed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, kind: type[FeedItem], **fields: Any) -> None:
        """The next item."""
        self.produced += 1
        self._waiting.append(kind(ordinal=self.produced, **fields))

    def append(self, item: FeedItem) -> None:
        """An item that was made with ordinal `produced` + 1; for the hot path."""
        self.produced += 1
        self._waiting.append(item)

    def next(self) -> FeedItem | None:
        """Gives the next item; None if none waits."""
        if not self._waiting:
            return None
        item = self._waiting.popleft()
        self._given.append(item)
        return item

    @property
    def uncommitted(self) -> int:
        """How many were given and are not committed."""
        return len(self._given)

    def commit(self, ordinal: int) -> Iterator[FeedItem]:
        """The items that are committed now."""
        given = self._given
        while given and given[0].ordinal <= ordinal:
            item = given.popleft()
            self.committed = item.ordinal
            yield item
