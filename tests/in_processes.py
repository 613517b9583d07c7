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
SPARK = "@spark"
"""How the id of a test with a Spark session ends, as pytest-xdist marks its own groups."""

STOP_TIMEOUT_S = 120.0

_workers: list[WorkerController] = []

# A process of pytest-xdist has no main module of a file; pyspark (4.2, `check_dependencies`) ends such a process.
vars(sys.modules["__main__"]).setdefault("__file__", pytest.__file__)


class OneStackAtATime(LoadFileScheduling):
    """Hands out files one by one, but all of acceptance to one process, and all tests with a Spark session to one: each
    of them shares what takes long to start, and to warm up."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(ACCEPTANCE):
            return ACCEPTANCE
        return SPARK if nodeid.endswith(SPARK) else super()._split_scope(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tells the scheduler, which knows of a test only its id, which tests have a Spark session."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            if "spark" in getattr(item, "fixturenames", ()) and not item.nodeid.startswith(ACCEPTANCE):
                item._id = type(item.id).parse(f"{item.nodeid}{SPARK}")


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
