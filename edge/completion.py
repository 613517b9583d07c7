"""Work that ends although whoever waits for it is cancelled."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def completed(work: Awaitable[T]) -> T:
    """The result of `work`, or its error. If this is cancelled, it raises CancelledError once `work` has ended."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            await asyncio.wait([running])
        raise
