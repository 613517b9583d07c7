"""Clients that measure go before what they measure; what they start does not."""

import os
import subprocess
import sys

import pytest

from bench.first_in_line import first_in_line

SCHEDULER = "import os; print(os.sched_getscheduler(0))"


def test_the_thread_goes_first_and_what_it_starts_does_not() -> None:
    with first_in_line():
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            pytest.skip("not allowed here: it takes root or CAP_SYS_NICE")
        assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
        started = subprocess.run([sys.executable, "-c", SCHEDULER], capture_output=True, text=True, check=True)
    assert int(started.stdout) == os.SCHED_OTHER
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_where_it_is_not_allowed_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with first_in_line():
        pass
    assert "run this as root" in capsys.readouterr().err
