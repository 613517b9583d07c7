"""Taking turns: so that those whose batches nobody waits for do not all share the processors with those whose batches
somebody does."""

from collections.abc import Callable
from threading import Semaphore

from pyspark.sql import DataFrame

Write = Callable[[DataFrame, int], None]
"""What `foreachBatch` takes: a batch and its number."""

LONGEST_WAIT_S = 60.0


class Turns:
    """Lets at most `at_once` batches be written at a time; safe for use by many threads.

    One that waits longer than `longest_wait_s` goes ahead: a query that hangs holds up no other for ever. After
    :meth:`end` nobody waits any more.
    """

    def __init__(self, at_once: int, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._free = Semaphore(at_once)
        self._longest_wait_s = longest_wait_s

    def taken_by(self, write: Write) -> Write:
        """`write`, called with a batch when it is its turn."""

        def write_in_turn(batch: DataFrame, batch_id: int) -> None:
            has_turn = self._free.acquire(timeout=self._longest_wait_s)
            try:
                write(batch, batch_id)
            finally:
                if has_turn:
                    self._free.release()

        return write_in_turn

    def end(self, waiting: int) -> None:
        """Let all of those that are `waiting` at most go ahead, as when the application ends."""
        self._free.release(waiting)
