"""An event loop whose time is virtual: nothing sleeps, and an hour of timers takes as long as their callbacks."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

TURNS_AT_ONCE = 100_000

EPOCH = 1_800_000_000.0
"""What the clocks of tests show when a loop starts, seconds since the epoch."""


class _Selector(selectors.SelectSelector):
    now = 0.0
    turns = 0
    turns_in_all = 0
    at_turn: tuple[int, Callable[[], None]] | None = None

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everybody waits, and nothing will ever happen")
        self.turns = self.turns + 1 if timeout <= 0 else 0
        if self.turns > TURNS_AT_ONCE:
            raise AssertionError("things go round and round, and time stands still")
        self.now += max(0.0, timeout)
        self.turns_in_all += 1
        if self.at_turn is not None and self.turns_in_all == self.at_turn[0]:
            self.at_turn[1]()
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    @property
    def turns(self) -> int:
        """How often the loop has gone round."""
        return self._virtual.turns_in_all

    def call_at_turn(self, turns: int, action: Callable[[], None]) -> None:
        """Calls `action` between two rounds, when there were so many."""
        self._virtual.at_turn = (turns, action)


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
