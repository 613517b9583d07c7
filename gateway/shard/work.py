"""Limits the work that the home does in one turn of the event loop, so that other connections are served in between.

Long work is a generator. It yields when :meth:`Work.spend` says so, and continues in the next turn. The yielded value
says whether a record is half applied; code that must not see that state awaits :meth:`Work.whole`.
"""

import asyncio
from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

R = TypeVar("R")
Steps: TypeAlias = Generator[bool, None, R]
"""Work in steps; each yields whether a record is half applied."""

TURN: Final = 5_000
"""Units of work in a turn: about five milliseconds."""

RECORD: Final = 20
RECIPIENT: Final = 15
"""Units for a record, and for each session that is offered its message. A visited node of the trie, or a subscription
that matches, is one unit."""

SLICE: Final = 1_000
"""Units of work between two calls of :meth:`Work.spend`, at most."""


class Work:
    """`spent` counts the units of the current turn; whoever begins a turn resets it to 0."""

    def __init__(self) -> None:
        self.spent = 0
        self._is_half = False
        self._waiting: list[asyncio.Future[None]] = []

    def spend(self, units: int) -> bool:
        """Counts units; True if the turn is over."""
        self.spent += units
        return self.spent >= TURN

    def pause(self, is_half: bool) -> None:
        """Ends the turn. If no record is half applied, those who wait for that continue before the next record."""
        self._is_half = is_half
        if not is_half:
            waiting, self._waiting = self._waiting, []
            for whole in waiting:
                if not whole.done():
                    whole.set_result(None)

    async def whole(self) -> None:
        """Returns when no record is half applied. That remains so until the caller awaits something else."""
        while self._is_half:
            whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(whole)
            await whole
