"""The steps of a start: those that run at the same time, how long each takes, and what comes of it."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from gateway.errors import GatewayError

T = TypeVar("T")


class Started(NamedTuple):
    """`serving`: shards whose homes serve; `failed`: those that could not start, and why."""

    serving: list[int]
    failed: dict[int, GatewayError]


class Steps:
    """`took_ms`: the time of each step, in order, ms. `now` gives monotonic seconds; the first step begins now. `done`
    grows with each record that is read, and each step: so others see that the start makes progress."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self.took_ms: dict[str, int] = {}
        self.done = 0

    def lap(self, name: str) -> None:
        """This step has ended, and the next one begins."""
        self.done += 1
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


async def each_by_itself(work: Mapping[int, Coroutine[Any, Any, T]]) -> dict[int, T | GatewayError]:
    """Does the work of all shards at the same time; what comes of it for each, or why it failed."""
    found = await asyncio.gather(*work.values(), return_exceptions=True)
    results: dict[int, T | GatewayError] = {}
    for number, one in zip(work, found, strict=True):
        if isinstance(one, BaseException) and not isinstance(one, GatewayError):
            raise one
        results[number] = one
    return results


async def failures_of(work: Mapping[int, Coroutine[Any, Any, None]]) -> dict[int, GatewayError]:
    """Does the work of all shards at the same time; why it failed, for those of which it did."""
    return {number: error for number, error in (await each_by_itself(work)).items() if error is not None}
