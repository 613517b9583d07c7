"""When logs are searched for what is missing: one search at a time, and again while something is missing (S3). Pure."""

from edge.feed_subscriber.batch import Search


class Searches:
    """`again_s` is the time between two searches for the same."""

    def __init__(self, again_s: float) -> None:
        self._again_s = again_s
        self._waiting: list[Search] = []
        self._is_running = False
        self._next_s: float | None = None

    def is_due(self, has_requests: bool, now_s: float) -> bool:
        """Whether :meth:`begin` is to be called; `has_requests`: something was asked for since."""
        return not self._is_running and (self._waiting != [] or has_requests or self._is_again(now_s))

    def due(self, has_requests: bool, now_s: float) -> float | None:
        """When that is the case."""
        if self._is_running:
            return None
        return now_s if self._waiting or has_requests else self._next_s

    def begin(self, wanted: list[Search]) -> Search | None:
        """The search to make now, of those that are wanted; None if none is. Partitions take turns."""
        waiting = {one.partition: one for one in wanted}
        kept = [waiting.pop(one.partition) for one in self._waiting if one.partition in waiting]
        self._waiting = [*kept, *waiting.values()]
        self._next_s = None
        if not self._waiting:
            return None
        self._is_running = True
        return self._waiting.pop(0)

    def done(self, now_s: float) -> None:
        """The search has ended; what is still missing is searched for again."""
        self._is_running = False
        self._next_s = now_s + self._again_s

    def _is_again(self, now_s: float) -> bool:
        return self._next_s is not None and now_s >= self._next_s
