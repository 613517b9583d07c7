"""An event loop in a thread of its own, for programs without asyncio."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs until `stop`. Any thread may call it. `closed` makes the error of calls after that."""

    def __init__(self, name: str, closed: Callable[[], Exception]) -> None:
        self._closed = closed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._is_stopped = False
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def call(self, action: Coroutine[Any, Any, T]) -> T:
        """Runs `action` on the loop; its result."""
        if self._is_stopped:
            action.close()
            raise self._closed()
        future = asyncio.run_coroutine_threadsafe(action, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # a thread that is interrupted does not leave it behind
            raise

    def soon(self, action: Callable[[], None]) -> None:
        """Runs `action` on the loop, unless that has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)

    def stop(self) -> None:
        """Ends loop and thread."""
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
