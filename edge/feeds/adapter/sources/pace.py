"""Replays a recording at N times the speed of the source's own times, for demonstrations (S2)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.adapter.sources.intake import Piece
from edge.feeds.source import SourceMessage

AT_ONCE_S: Final = 0.02
"""What is due within this time goes together."""


class Pace:
    """`speed`: 1 is that of the source. A message without a time goes with the one before it."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._first: tuple[int, float] | None = None  # the source's time, and the loop's

    async def parts(self, piece: Piece) -> AsyncIterator[Piece]:
        """The piece in parts, each when it is due. The last one has the piece's place."""
        start = 0
        for at, one in enumerate(piece.found):
            due_s = self._due_in(one) if isinstance(one, SourceMessage) else 0.0
            if due_s > AT_ONCE_S:
                if at > start:
                    yield Piece(piece.found[start:at], now_us())
                    start = at
                await asyncio.sleep(due_s)
        yield Piece(piece.found[start:], now_us(), piece.place)

    def _due_in(self, message: SourceMessage) -> float:
        if message.at_us is None:
            return 0.0
        now = asyncio.get_running_loop().time()
        if self._first is None:
            self._first = message.at_us, now
        at_us, at = self._first
        return at + (message.at_us - at_us) / 1e6 / self._speed - now
