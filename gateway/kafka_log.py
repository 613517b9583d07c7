"""What Kafka's clients log, each kind of event once a second at most.

While a broker is away, each client of a process tells of it several times a second.
"""

import logging
import time
from collections.abc import Callable
from math import inf
from typing import Final

EVERY_S: Final = 1.0


class LogLimit:
    """`now` gives seconds. For threads of all clients: two that ask at the same time may both log."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged_at: dict[str, float] = {}

    def allows(self, kind: str) -> bool:
        """Whether an event of this kind is logged now; then it counts as logged."""
        now = self._now()
        if now - self._logged_at.get(kind, -inf) < EVERY_S:
            return False
        self._logged_at[kind] = now
        return True


class FacilityFilter(logging.Filter):
    """Of librdkafka's log: a line for each facility (`FAIL`, `SESSTMOUT`, …), which is its first argument."""

    def __init__(self, limit: LogLimit) -> None:
        super().__init__()
        self._limit = limit

    def filter(self, record: logging.LogRecord) -> bool:
        facility = record.args[0] if isinstance(record.args, tuple) and record.args else record.msg
        return self._limit.allows(str(facility))


def client_logger() -> logging.Logger:
    """For the option `logger` of all clients of this process."""
    logger = logging.getLogger("librdkafka")
    if not logger.filters:
        logger.addFilter(FacilityFilter(LogLimit()))
    return logger
