"""An event loop whose time is virtual: nothing sleeps, and an hour of timers takes as long as their callbacks."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

TURNS_AT_ONCE = 100_000

EPOCH = 1_800_000_000.0
"""What the clocks of tests show when a loop starts, seconds since the epoch."""


class _Selector(selectors.SelectSelector):
    now = 0.0
    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everybody waits, and nothing will ever happen")
        self.turns = self.turns + 1 if timeout <= 0 else 0
        if self.turns > TURNS_AT_ONCE:
            raise AssertionError("things go round and round, and time stands still")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(scenario: Coroutine[Any, Any, R]) -> R:
    """Runs a scenario to its end; whatever a callback raised fails it."""
    raised: list[BaseException] = []

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        raised.append(context.get("exception") or AssertionError(context["message"]))

    async def watched() -> R:
        asyncio.get_running_loop().set_exception_handler(note)
        return await scenario

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(watched())
    assert not raised, raised
    return result
