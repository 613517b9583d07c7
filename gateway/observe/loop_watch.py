"""Measures how late the event loop is: a delay there delays every client."""

import asyncio

from gateway import durations

INTERVAL_S = 0.5


class LoopWatch:
    """Records the lag in `seconds`, twice a second."""

    def __init__(self) -> None:
        self.seconds = durations.event_loop_lag()
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_at(self._due, self._note)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _note(self) -> None:
        self.seconds.observe(max(0.0, self._loop.time() - self._due))
        self.start()
