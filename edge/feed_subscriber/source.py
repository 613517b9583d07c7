"""Where a subscriber gets its items from: Kafka, or a gateway."""

from collections.abc import Mapping
from typing import Protocol

from edge.feed_subscriber.outputs import Outputs
from edge.feed_subscriber.state import StateChange, StoredState


class FeedSource(Protocol):
    """Whoever makes one is told when there may be more items."""

    @property
    def outputs(self) -> Outputs:
        """The items."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What came and was not given, by reason."""

    async def open(self, stored: StoredState) -> None:
        """Begins to read. Items are given once what :meth:`changes` says then is durable. Raises ClientError."""

    def taken(self) -> None:
        """The application has taken an item."""

    def commit(self, ordinal: int) -> None:
        """The application is done with all items up to this one."""

    def changes(self) -> StateChange | None:
        """What is to be stored since the last time."""

    def stored(self) -> None:
        """What :meth:`changes` has said last is durable."""

    async def close(self) -> None:
        """Ends the reading."""
