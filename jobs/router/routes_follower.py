"""The routes of a router's process: waiting for the first table, then keeping what is in memory as the table is."""

from collections.abc import Callable
from threading import Event, Thread

import structlog
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from jobs.observe.progress import first_line
from jobs.runtime.application import JVM_GONE
from pipelines.routing.routes_in_memory import RoutesInMemory

LOOK_S = 0.5
UNREADABLE = (PySparkException, Py4JError, DeltaError, OSError)
"""What a look raises where there is no table, or no checkpoint, or no way to it."""

log = structlog.get_logger(__name__)


def await_routes(routes: RoutesInMemory, stopped: Event) -> None:
    """Waits for the routes table, which the ledger application makes, and takes it into memory. Raises what
    `JVM_GONE` says if there is no JVM any more."""
    while not stopped.is_set():
        try:
            routes.refresh()
            return
        except JVM_GONE:
            raise
        except UNREADABLE as error:
            log.debug("no routes table yet", error=first_line(str(error)))
        stopped.wait(LOOK_S)


def keep_routes(routes: RoutesInMemory, every_s: float, stopped: Event, is_quiet: Callable[[], bool]) -> Thread:
    """Starts the thread that looks for a newer table `every_s`, at a moment that `is_quiet`.

    A look that fails is logged and tried again; what is in memory gets old meanwhile, and routers that cannot tell
    what is wanted send to every shard.
    """

    def keep() -> None:
        wait_s = every_s
        while not stopped.wait(wait_s):
            wait_s = LOOK_S
            if not is_quiet():
                continue
            try:
                routes.refresh()
                wait_s = every_s
            except UNREADABLE as error:
                if not stopped.is_set():
                    log.warning("the routes cannot be read", error=first_line(str(error)))

    thread = Thread(target=keep, name="routes", daemon=True)
    thread.start()
    return thread
