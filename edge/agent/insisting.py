"""Waits for space: what has to be done is tried again, and the log says once that it waits (M2)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

_log: Final = logging.getLogger("waystation.agent")


async def insist(attempt: Callable[[], Awaitable[T]], *errors: type[Exception], waits: str, pause_s: float) -> T:
    """What `attempt` returns. While it raises one of `errors` it is tried again, after a pause. `waits`: what waits
    meanwhile, for the log."""
    has_complained = False
    while True:
        try:
            return await attempt()
        except errors as error:
            if not has_complained:
                _log.warning("%s: %s", waits, error)
            has_complained = True
            await asyncio.sleep(pause_s)
