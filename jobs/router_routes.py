"""The routes of a router's process: waiting for the first table, then keeping what is in memory as the table is."""

from collections.abc import Callable
from threading import Event, Thread

import structlog
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.routes_in_memory import RoutesInMemory
from pipelines.sources import read_table
from schemas.settings import Settings
from schemas.tables import ROUTES

LOOK_S = 0.5

log = structlog.get_logger(__name__)


def await_routes(spark: SparkSession, settings: Settings, stopped: Event) -> None:
    """Waits for the routes table with its catch-all row; the ledger application makes it."""
    while not stopped.is_set():
        try:
            if read_table(spark, settings.tables, ROUTES).head(1):
                return
        except PySparkException:
            log.debug("no routes table yet")
        stopped.wait(LOOK_S)


def keep_routes(spark: SparkSession, settings: Settings, stopped: Event, is_quiet: Callable[[], bool]) -> Thread:
    """Starts the thread that looks for a newer table every `router.routes_refresh_s`, at a moment that `is_quiet`.

    A look that fails is logged and tried again; what is in memory gets old meanwhile, and routers that cannot tell
    what is wanted send to every shard.
    """

    def keep() -> None:
        routes: RoutesInMemory | None = None
        wait_s = 0.0
        while not stopped.wait(wait_s):
            wait_s = LOOK_S
            if not is_quiet():
                continue
            try:
                routes = routes or RoutesInMemory(spark, settings.tables)
                routes.refresh()
                wait_s = settings.router.routes_refresh_s
            except (PySparkException, Py4JError, DeltaError, OSError) as error:
                if not stopped.is_set():
                    log.warning("the routes cannot be read", error=str(error).partition("\n")[0])

    thread = Thread(target=keep, name="routes", daemon=True)
    thread.start()
    return thread
