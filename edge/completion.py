"""Work that ends although whoever waits for it is cancelled."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def completed(work: Awaitable[T]) -> T:
    """The result of `work`, or its error. If this is cancelled, once or more, it raises CancelledError once `work` has
    ended."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise
