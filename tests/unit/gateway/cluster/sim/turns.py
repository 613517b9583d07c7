"""Coroutines of the gateway's own parts in the simulation: they run to where they wait whenever something has happened.

They know no time: what they wait for are records that are read back, and answers of others.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from gateway.errors import ShardLost
from tests.unit.gateway.cluster.sim.world import Violation


class Turns:
    """An event loop that goes round only while somebody can go on."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: list[BaseException] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ShardLost):
            self._failed.append(error)

    def settle(self) -> None:
        """Lets everybody go on as far as possible. Raises Violation if one of them fails."""
        if not self._tasks or self.loop.is_running():
            return
        ready: Any = self.loop._ready  # type: ignore[attr-defined]
        while ready:
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        if self._failed:
            failed = self._failed.pop()
            raise failed if isinstance(failed, Violation) else Violation(f"a gateway failed: {failed!r}") from failed

    def close(self) -> None:
        """The run is over, whoever still waits."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()

        async def ended() -> None:
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(ended())
        self.loop.close()
