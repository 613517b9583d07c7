"""Slowing a client down: its host reads on when the client's rules say so, not before (Q12, R9)."""

import asyncio
from collections.abc import Callable

from gateway.home.rules import Paced


class Pacing:
    """Of one connection. `read_on` is called when the wait is over; it asks again."""

    def __init__(self, rules: Paced, read_on: Callable[[], None]) -> None:
        self._rules = rules
        self._read_on = read_on
        self._timer: asyncio.TimerHandle | None = None

    def holds(self) -> bool:
        """Whether nothing more may be read now."""
        wait_s = self._rules.wait_s()
        if wait_s <= 0:
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._due)
        return True

    def end(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        self._read_on()
