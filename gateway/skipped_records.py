"""Records on a topic that are not valid: they are counted and skipped, since whoever may write may write anything."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

_LOG_EVERY_S: Final = 60.0

log = structlog.get_logger(__name__)


class SkippedRecords:
    """Of `topic`, named without its prefix; counted in `counts` as `name`. `now` gives seconds."""

    def __init__(self, topic: str, counts: Counter[str], name: str, now: Callable[[], float]) -> None:
        self._topic, self._counts, self._name, self._now = topic, counts, name, now
        self._logged_at = float("-inf")

    def skip(self, offset: int | None, error: Exception) -> None:
        """One more. At most a line a minute: whoever writes one bad record may write many."""
        self._counts[self._name] += 1
        now = self._now()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            log.warning(f"skipped a record on the topic {self._topic}", offset=offset, reason=str(error)[:200])
