"""What the Spark applications have in common: how their processes begin and end, and whose the checkpoints are."""

import fcntl
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import IO

from jobs.errors import JobError
from jobs.signals import set_on_signals
from schemas.errors import WaystationError
from schemas.logs import configure_logging
from schemas.readiness import PART_VARIABLE
from schemas.settings import Settings, process_settings

Run = Callable[[Settings, str, Event], None]
"""An application: runs with these settings, as this part of a stack (empty for none), until the event is set."""


def run_application(run: Run) -> int:
    """Run an application with the settings of the environment until SIGTERM or SIGINT; its exit status.

    A WaystationError is one sentence on standard error, and status 1.
    """
    stopped = Event()
    set_on_signals(stopped, signal.SIGTERM, signal.SIGINT)
    try:
        settings = process_settings(os.environ)
        configure_logging(settings.log)
        run(settings, os.environ.get(PART_VARIABLE, ""), stopped)
    except WaystationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def run_once(run: Callable[[Settings], int]) -> int:
    """Run a job that ends by itself with the settings of the environment; `run` returns its exit status.

    A WaystationError is one sentence on standard error, and status 1.
    """
    try:
        settings = process_settings(os.environ)
        configure_logging(settings.log)
        return run(settings)
    except WaystationError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def lock_checkpoints(data: str, name: str, otherwise: str) -> IO[str]:
    """Holds the checkpoints of `name` under the data directory for this process, as long as the file is open.

    Two drivers on one checkpoint would each commit batches that the other knows nothing of. Raises JobError if another
    process has them; `otherwise` is what to do instead of stopping it. A process that dies holds nothing.
    """
    path = Path(data) / "locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    held = path.open("w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        held.close()
        raise JobError(f"another process runs {name} on {data}: stop it, or {otherwise}") from error
    return held
