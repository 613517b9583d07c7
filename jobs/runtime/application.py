"""Start and end of the Spark applications' processes, and ownership of checkpoints."""

import fcntl
import os
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import IO, Protocol

import structlog
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

from jobs.errors import JobError
from jobs.observe.progress import first_line
from jobs.runtime.lease import Lease
from jobs.runtime.signals import set_on_signals
from jobs.runtime.storage import use_store
from jobs.runtime.submitted import is_submitted
from schemas.errors import WaystationError
from schemas.logs import configure_logging
from schemas.readiness import PART_VARIABLE
from schemas.settings import Settings, process_settings

log = structlog.get_logger(__name__)


class Held(Protocol):
    """Checkpoints that this process owns until it calls `close`."""

    def close(self) -> None: ...


JVM_GONE = (Py4JNetworkError, ConnectionRefusedError)
"""Raised by calls of a JVM that is gone; the call during which it goes may raise a plain Py4JError."""

Run = Callable[[Settings, str, Event], None]
"""An application: runs with these settings, as this part of a stack (empty for none), until the event is set."""


def run_application(run: Run) -> int:
    """Run an application with the settings of the environment until SIGTERM or SIGINT; returns its exit status.

    A WaystationError is printed as one sentence on standard error, and sets the status, usually 1.
    """
    stopped = Event()
    set_on_signals(stopped, signal.SIGTERM, signal.SIGINT)

    def until_stopped(settings: Settings) -> int:
        run(settings, os.environ.get(PART_VARIABLE, ""), stopped)
        return 0

    return run_once(until_stopped)


def run_once(run: Callable[[Settings], int]) -> int:
    """Run a job that ends by itself with the settings of the environment; `run` returns its exit status.

    A WaystationError is printed as one sentence on standard error, and sets the status, usually 1. So is a lost JVM:
    the application cannot go on without it, and its supervisor starts another process.
    """
    try:
        settings = process_settings(os.environ)
        configure_logging(settings.log)
        use_store(settings.storage)
        return run(settings)
    except WaystationError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    except Py4JJavaError:
        raise
    except (Py4JError, *JVM_GONE) as error:
        sys.stderr.write(f"the JVM of this process no longer answers: {error}\n")
        return 1


@contextmanager
def failing_as(error: type[JobError], sentence: str) -> Iterator[None]:
    """What nobody has foreseen becomes `error`, with `sentence` and the reason. For jobs whose exit status 1 says what
    they have found: an uncaught exception ends with that status too."""
    try:
        yield
    except WaystationError:
        raise
    except Exception as unforeseen:
        log.exception(sentence)
        raise error(f"{sentence}: {first_line(str(unforeseen))}") from unforeseen


def hold_checkpoints(settings: Settings, name: str, otherwise: str, stopped: Event) -> Held:
    """Holds the checkpoints of `name` for this process: by a lock in the data directory, or, if drivers of the same
    tables may run on other machines, by a lease; `stopped` is set if that is lost. Raises JobError if another driver
    has them."""
    if is_submitted(os.environ) or settings.storage.tables:
        of_tables = f"{zlib.crc32(settings.tables.encode()):08x}"
        return Lease(settings.kafka, f"{name}.{of_tables}", settings.cluster.lease_s, stopped, stopped.set)
    return lock_checkpoints(settings.data, name, otherwise)


def lock_checkpoints(data: str, name: str, otherwise: str) -> IO[str]:
    """Locks the checkpoints of `name` under the data directory for this process, as long as the file is open.

    Two drivers on one checkpoint would each commit batches that the other does not know. Raises JobError if another
    process has them; `otherwise` says what to do instead of stopping it. A process that dies releases its lock.
    """
    path = Path(data) / "locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    held = path.open("w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        held.close()
        raise JobError(f"another process is running {name} in {data}: stop it, or {otherwise}") from error
    return held
