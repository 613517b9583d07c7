"""How much is done at one turn of the event loop. Who has more to do goes on at the next; others have theirs between.

What takes long is a generator that yields when :meth:`Work.spend` says so. It yields whether it is in the middle of a
record; who needs records as a whole waits for :meth:`Work.whole`.
"""

import asyncio
from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

R = TypeVar("R")
Steps: TypeAlias = Generator[bool, None, R]
"""Work in steps; what is yielded: whether a record is half done."""

TURN: Final = 5_000
"""Units of a turn, some five milliseconds."""

RECORD: Final = 20
RECIPIENT: Final = 15
"""What a record, and a message offered to a session, cost; the unit is a subscription or a node of the trie."""

SLICE: Final = 1_000
"""Units of what is not interrupted."""


class Work:
    """What was `spent` in the present turn. Whoever begins a turn sets it to 0."""

    def __init__(self) -> None:
        self.spent = 0
        self._is_half = False
        self._waiting: list[asyncio.Future[None]] = []

    def spend(self, units: int) -> bool:
        """Whether the turn is over."""
        self.spent += units
        return self.spent >= TURN

    def pause(self, is_half: bool) -> None:
        """The turn is over. Whoever waits for whole records goes on before the next one, if all are."""
        self._is_half = is_half
        if not is_half:
            waiting, self._waiting = self._waiting, []
            for whole in waiting:
                if not whole.done():
                    whole.set_result(None)

    async def whole(self) -> None:
        """Returns when no record is half done; so it stays until the caller awaits something."""
        while self._is_half:
            whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(whole)
            await whole
