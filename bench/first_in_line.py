"""A client that measures is an instrument: in life it has a machine of its own."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOWEST = 1
"""Of real-time priorities: nobody else here has any."""
NOT_FIRST = "the client that measures may not go first, so its own waits count too: run this on Linux, as root\n"


@contextmanager
def first_in_line() -> Iterator[None]:
    """Meanwhile this thread gets a processor before all others, so that its own waits for one do not count as the
    platform's: beside a stack that takes all of them it would stand still for 100 ms now and then. What it starts is
    not preferred. Says so where that is not to be had (it takes Linux, and root or CAP_SYS_NICE)."""
    if sys.platform != "linux":
        sys.stderr.write(NOT_FIRST)
        yield
        return
    before, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(LOWEST))
    except PermissionError:
        sys.stderr.write(NOT_FIRST)
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, parameter)
