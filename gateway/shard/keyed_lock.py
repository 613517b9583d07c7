"""One thing at a time for each key: attaching a client and kicking it (G5), members of a share group."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class _Lock:
    """Forgotten when nobody has it or waits for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class KeyedLock:
    """A lock a key; `len` is how many keys somebody works on or waits for."""

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextlib.asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Waits for whoever came before."""
        lock = self._locks.setdefault(key, _Lock())
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[key]
