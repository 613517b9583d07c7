"""Rate limit for reading: a connection resumes reading only when the client's rules allow it (Q12, R9)."""

import asyncio
from collections.abc import Callable

from gateway.shard.rules import Paced


class RateLimit:
    """The rate limit of one connection. Calls `read_on` after the wait; `read_on` asks again."""

    def __init__(self, rules: Paced, read_on: Callable[[], None]) -> None:
        self._rules = rules
        self._read_on = read_on
        self._timer: asyncio.TimerHandle | None = None

    def holds(self) -> bool:
        """Whether reading must wait now."""
        wait_s = self._rules.wait_s()
        if wait_s <= 0:
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._due)
        return True

    def end(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        self._read_on()
