"""Changes of feeds for event streams: numbered, kept for a while, with ids by which a client resumes (S1).

A stream has no queue of its own: it has a number, and reads what was kept since. One that is slower than the feed
changes, or resumes too late, gets the current state instead, so a client never holds up a gateway.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence

from schemas.feed_api import FeedChange


class FeedEvents:
    """Owns the changes of all feeds of this gateway. `name` is that of this process: ids of others resume nothing."""

    def __init__(self, kept: int) -> None:
        self.name = secrets.token_hex(8)
        self._kept = kept
        self._numbers: dict[str, int] = {}
        self._changes: dict[str, deque[FeedChange]] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.listeners: list[Callable[[str], None]] = []
        """Called with the name of a feed that has changed, or is forgotten."""

    def last(self, feed: str) -> int:
        """The number of the last change of a feed; the first one is 1."""
        return self._numbers.get(feed, 0)

    def add(self, change: FeedChange) -> None:
        feed = change.feed.name
        self._numbers[feed] = self.last(feed) + 1
        self._changes.setdefault(feed, deque(maxlen=self._kept)).append(change)
        self._changed(feed)

    def forget(self, feed: str) -> None:
        """Nothing is known of the feed any more."""
        self._numbers.pop(feed, None)
        self._changes.pop(feed, None)
        self._changed(feed)

    def _changed(self, feed: str) -> None:
        self.wake(feed)
        for listener in self.listeners:
            listener(feed)

    def since(self, feed: str, number: int) -> Sequence[FeedChange] | None:
        """The changes after `number`, in order; None if they are not all kept, or there is no such number."""
        missing = self.last(feed) - number
        kept = self._changes.get(feed, ())
        if not 0 <= missing <= len(kept):
            return None
        return list(kept)[len(kept) - missing :]

    async def wait(self, feed: str, number: int, timeout_s: float) -> bool:
        """Returns once there is a change after `number`, or somebody calls `wake`; False after `timeout_s`."""
        if self.last(feed) > number:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(feed, set())
        waiting.add(woken)
        try:
            done, _ = await asyncio.wait([woken], timeout=timeout_s)
            return bool(done)
        finally:
            waiting.discard(woken)
            if not waiting and self._waiting.get(feed) is waiting:
                del self._waiting[feed]

    def wake(self, feed: str) -> None:
        for woken in self._waiting.get(feed, ()):
            if not woken.done():
                woken.set_result(None)

    def wake_all(self) -> None:
        """Ends every wait."""
        for feed in list(self._waiting):
            self.wake(feed)
