"""The batch limiter: keeps batches that nobody waits for from crowding out batches that somebody does wait for."""

from collections.abc import Callable
from threading import Semaphore

from pyspark.sql import DataFrame

Write = Callable[[DataFrame, int], None]
"""A callback for `foreachBatch`: takes a batch and its number."""

LONGEST_WAIT_S = 60.0


class BatchLimiter:
    """Lets at most `at_once` batches be written at a time. Safe for use by many threads.

    A batch that has waited `longest_wait_s` goes ahead anyway, so a query that hangs never blocks the others for good.
    After :meth:`end` no batch waits.
    """

    def __init__(self, at_once: int, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._free = Semaphore(at_once)
        self._longest_wait_s = longest_wait_s

    def limited(self, write: Write) -> Write:
        """`write`, wrapped so that it waits for a free slot first."""

        def write_in_slot(batch: DataFrame, batch_id: int) -> None:
            has_slot = self._free.acquire(timeout=self._longest_wait_s)
            try:
                write(batch, batch_id)
            finally:
                if has_slot:
                    self._free.release()

        return write_in_slot

    def end(self, waiting: int) -> None:
        """Let all waiting batches go ahead, `waiting` at most, for example when the application stops."""
        self._free.release(waiting)
