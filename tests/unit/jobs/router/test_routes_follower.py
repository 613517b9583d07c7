"""The routes of a router are followed whatever the table is like for a moment (R7)."""

from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from jobs.router import routes_follower
from jobs.router.routes_follower import keep_routes


class OnceUnreadable:
    """Routes whose table cannot be read the first time."""

    def __init__(self, error: Exception) -> None:
        self._error: Exception | None = error
        self.are_read = Event()

    def refresh(self) -> bool:
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.are_read.set()
        return True


@pytest.mark.parametrize(
    "error",
    [pa.ArrowInvalid("Parquet magic bytes not found"), DeltaError("x"), FileNotFoundError("x")],
    ids=lambda error: type(error).__name__,
)
def test_routes_are_read_again_after_an_error(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Otherwise they would grow old, and each message go to every shard until the router is restarted."""
    monkeypatch.setattr(routes_follower, "LOOK_S", 0.01)
    stopped, routes = Event(), OnceUnreadable(error)
    as_routes: Any = routes
    thread = keep_routes(as_routes, 0.01, stopped, lambda: True)
    try:
        assert routes.are_read.wait(10)
    finally:
        stopped.set()
        thread.join()
