"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Waits until `condition` holds; fails naming `what` if it does not in time.

    What takes long to look at is looked at seldom: looking would keep the processor from what is waited for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"not in time: {what}"
        time.sleep(max(0.1, 3 * (now - began)))
