"""One thing at a time for each client: attaching it, and kicking it (G5)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class _Turn:
    """Forgotten when nobody is at it or waits."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Turns:
    """The clients that somebody works on or waits for; `len` is how many they are."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    @contextlib.asynccontextmanager
    async def of(self, client: str) -> AsyncIterator[None]:
        """Waits for whoever came before."""
        turn = self._turns.setdefault(client, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[client]
