"""What is being worked on in a shard, so that its end can wait for it: requests of clients, and tasks of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from gateway.errors import NotAdmitted
from mqtt.codes import ReasonCode


class Operations:
    """Requests of clients: `async with` counts one. Once the shard has ended they raise NotAdmitted (0x9C)."""

    def __init__(self) -> None:
        self._running = 0
        self._ended: asyncio.Future[None] | None = None

    async def __aenter__(self) -> None:
        if self._ended is not None:
            raise NotAdmitted(ReasonCode.USE_ANOTHER_SERVER, "the client's shard moves to another gateway")
        self._running += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running -= 1
        if not self._running and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def close(self) -> None:
        """Lets no more begin."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()

    async def end(self) -> None:
        """Lets no more begin; returns once those that run have ended."""
        self.close()
        if self._running and self._ended is not None:
            await self._ended


class Tasks:
    """Tasks that a shard has started; `spawn` starts a coroutine whose failure is fatal."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._spawn = spawn
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._spawn(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def soon(self, action: Callable[[], None]) -> None:
        """Calls `action` in the next round of the loop; its failure is fatal."""

        async def call() -> None:
            action()

        self.spawn(call())

    async def ended(self, timeout_s: float) -> bool:
        """Waits until none of them runs; False if some still do after a while."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
        return not self._running

    @property
    def are_left(self) -> bool:
        """Whether any of them runs."""
        return bool(self._running)
