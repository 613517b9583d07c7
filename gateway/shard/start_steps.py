"""The steps of a start: those that run at the same time, and how long each takes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Steps:
    """`took_ms`: the time of each step, in order, ms. `now` gives monotonic seconds; the first step begins now."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self.took_ms: dict[str, int] = {}

    def lap(self, name: str) -> None:
        """This step has ended, and the next one begins."""
        began, self._began = self._began, self._now()
        self.took_ms[name] = self.took_ms.get(name, 0) + round(1000 * (self._began - began))


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Does all of it at the same time; returns what each returns. Waits for all in any case, so that nothing goes on
    behind a failure, which is then raised: the first in the order of `work`."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found
