"""An event loop in a thread of its own, for programs without asyncio."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs until `stop`. Any thread may call it. `closed` makes the error of calls that have not ended by then, and of
    those after that."""

    def __init__(self, name: str, closed: Callable[[], Exception]) -> None:
        self._closed = closed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._changing = threading.Lock()
        self._is_stopped = False
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def call(self, action: Coroutine[Any, Any, T]) -> T:
        """Runs `action` on the loop; its result."""
        with self._changing:  # what begins before `stop` is found by `_end`
            if self._is_stopped:
                action.close()
                raise self._closed()
            future = asyncio.run_coroutine_threadsafe(action, self._loop)
        try:
            return future.result()
        except CancelledError:
            if self._is_stopped:
                raise self._closed() from None
            raise
        except BaseException:
            future.cancel()  # a thread that is interrupted does not leave it behind
            raise

    def soon(self, action: Callable[[], None]) -> None:
        """Runs `action` on the loop, unless that has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)

    def stop(self) -> None:
        """Ends calls, loop and thread; returns once they have ended."""
        with self._changing:
            is_first, self._is_stopped = not self._is_stopped, True
        if is_first:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join()
        if is_first:
            self._loop.close()

    async def _end(self) -> None:
        """A loop that stops leaves its tasks as they are, and whoever waits for one would wait for ever."""
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        self._loop.stop()
