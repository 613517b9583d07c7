"""The routes of a router's process: waits for the first table, then keeps the copy in memory up to date."""

from collections.abc import Callable
from threading import Event, Thread

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from jobs.observe.progress import first_line
from jobs.runtime.application import JVM_GONE
from pipelines.routing.routes_in_memory import RoutesInMemory
from pipelines.storage.table_files import READ_ERRORS

LOOK_S = 0.5
UNREADABLE = (PySparkException, Py4JError, *READ_ERRORS)
"""The exceptions of a read, with Spark or without, of a table or a checkpoint that cannot be read just now."""

log = structlog.get_logger(__name__)


def await_routes(routes: RoutesInMemory, stopped: Event) -> None:
    """Waits for the routes table, which the ledger application creates, and loads it into memory. Raises the exceptions
    of `JVM_GONE` if the JVM is gone."""
    while not stopped.is_set():
        try:
            routes.refresh()
            return
        except JVM_GONE:
            raise
        except UNREADABLE as error:
            log.debug("the routes table does not exist yet", error=first_line(str(error)))
        stopped.wait(LOOK_S)


def keep_routes(routes: RoutesInMemory, every_s: float, stopped: Event, is_quiet: Callable[[], bool]) -> Thread:
    """Starts the thread that looks for a newer table `every_s`, at a moment that `is_quiet`.

    A failed look is logged and retried. Meanwhile the routes in memory grow old, and once they are too old routers send
    to every shard.
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
                    log.warning("cannot read the routes table", error=first_line(str(error)))

    thread = Thread(target=keep, name="routes", daemon=True)
    thread.start()
    return thread
