"""Tests in several processes (pytest-xdist): who gets which file; each stops what it started, also on Ctrl-C."""

import contextlib
import os
import signal
import sys

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ACCEPTANCE = "tests/acceptance/"
STOP_TIMEOUT_S = 120.0

_workers: list[WorkerController] = []

# A process of pytest-xdist has no main module of a file; pyspark (4.2, `check_dependencies`) ends such a process.
vars(sys.modules["__main__"]).setdefault("__file__", pytest.__file__)


class OneStackAtATime(LoadFileScheduling):
    """Hands out files one by one, and all of acceptance to one process: its tests share a stack."""

    def _split_scope(self, nodeid: str) -> str:
        return ACCEPTANCE if nodeid.startswith(ACCEPTANCE) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneStackAtATime:
    return OneStackAtATime(config, log)


def pytest_testnodeready(node: WorkerController) -> None:
    _workers.append(node)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """pytest-xdist would kill after ten seconds those who still stop a stack after Ctrl-C, which they got, too."""
    for worker in _workers:
        worker.shutdown()
    for worker in _workers:
        with contextlib.suppress(worker.channel.RemoteError, worker.channel.TimeoutError):
            worker.channel.waitclose(STOP_TIMEOUT_S)


def pytest_keyboard_interrupt() -> None:
    """A process that tests is not interrupted again while it stops what it started."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
