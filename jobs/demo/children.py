"""The end of the processes that a demo has started."""

import subprocess
import time
from collections.abc import Iterable
from typing import Any


def wait_or_kill(children: Iterable["subprocess.Popen[Any]"], within_s: float) -> None:
    """Returns once all have ended; those that have been told to end and take longer than `within_s` are killed."""
    deadline = time.monotonic() + within_s
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
