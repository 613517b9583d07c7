"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Waits until `condition` holds; fails naming `what` if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)
