"""What a subscriber stores and finds again (S3). Values only; :mod:`edge.feed_subscriber.sqlite_state` has the file."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from edge.feed_subscriber.replay import ReadPosition
from feeds.merge_state import StreamState
from feeds.message import Feed


class StateChange(NamedTuple):
    """Becomes durable as a whole. None removes a source stream, or a partition that is not read any more. `ended`:
    sources with the newest epoch that has ended."""

    streams: Mapping[str, StreamState | None]
    partitions: Mapping[int, ReadPosition | None]
    ended: Mapping[str, int]
    current: Feed | None = None


class StoredState(NamedTuple):
    """All that was stored; empty for a new subscriber."""

    streams: tuple[StreamState, ...] = ()
    partitions: Mapping[int, ReadPosition] = {}
    ended: Mapping[str, int] = {}
    current: Feed = Feed.ACTIVE


class StateStore(Protocol):
    """Raises the errors of :mod:`edge.client.errors`."""

    def recover(self) -> StoredState:
        """What is there."""

    def commit(self, change: StateChange) -> None:
        """Returns once it is durable."""

    def close(self) -> None:
        """Releases what it has."""


class MemoryState:
    """Keeps nothing: a subscriber without a file begins anew."""

    def recover(self) -> StoredState:
        return StoredState()

    def commit(self, change: StateChange) -> None:
        pass

    def close(self) -> None:
        pass
