"""When an epoch of a source has ended for a subscriber: both feeds have gone on to a newer one (S3). Pure.

All epochs of a source are in one partition of each feed, in order: a feed that has brought a newer one brings nothing
more of an older one. A feed whose adapter is dead need not. A while passes before the epoch ends, for what is searched.
"""

from collections.abc import Callable

from edge.feed_subscriber.stream_view import NOT_JOINED, StreamView
from feeds.message import FEEDS, Feed, epoch_of, name_of


class Epochs:
    """`keep_s` is how long an epoch is kept after both feeds have left it."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._views: dict[str, list[StreamView]] = {}
        self._several: dict[str, None] = {}
        self._left_since: dict[str, float] = {}

    def add(self, view: StreamView) -> None:
        """A source stream has begun, or was restored."""
        name = name_of(view.stream)
        views = self._views.setdefault(name, [])
        views.append(view)
        views.sort(key=lambda one: epoch_of(one.stream))
        if len(views) > 1:
            self._several[name] = None

    def remove(self, stream: str) -> None:
        """It has ended."""
        name = name_of(stream)
        views = self._views[name] = [one for one in self._views[name] if one.stream != stream]
        self._left_since.pop(stream, None)
        if len(views) < 2:
            self._several.pop(name, None)
        if not views:
            del self._views[name]

    def ended(self, now_s: float, is_gone: Callable[[Feed], bool]) -> list[str]:
        """Source streams that have ended by now, oldest epochs first; `is_gone`: nothing comes from this feed."""
        found = []
        for name in self._several:
            views = self._views[name]
            for at, view in enumerate(views[:-1]):
                newer = views[at + 1 :]
                has_left = [any(one.first[feed] != NOT_JOINED for one in newer) for feed in FEEDS]
                if not any(has_left) or not all(has_left[feed] or is_gone(feed) for feed in FEEDS):
                    self._left_since.pop(view.stream, None)
                elif now_s >= self._left_since.setdefault(view.stream, now_s) + self._keep_s:
                    found.append(view.stream)
        return found

    def due(self) -> float | None:
        """When the next one ends."""
        return min(self._left_since.values()) + self._keep_s if self._left_since else None
