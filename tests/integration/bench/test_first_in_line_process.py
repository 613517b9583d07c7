"""Clients that measure go before what they measure; what they start does not."""

import os
import subprocess
import sys

import pytest

from bench.subscriber import NOT_FIRST, first_in_line

SCHEDULER = "import os; print(os.sched_getscheduler(0))"


def test_the_thread_goes_first_and_what_it_starts_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Or, where that is not to be had, it is said."""
    with first_in_line():
        if NOT_FIRST in capsys.readouterr().err:
            return
        assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
        started = subprocess.run([sys.executable, "-c", SCHEDULER], capture_output=True, text=True, check=True)
    assert int(started.stdout) == os.SCHED_OTHER
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
