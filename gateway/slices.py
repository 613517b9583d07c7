"""Long work in slices, so that everybody else on the event loop has a turn between two."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
SLICE: Final = 16
"""Items without a turn for others. Of bundles, a signature and a payload each, this is about 2 ms."""


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, in order; others have a turn after each slice."""
    for number, item in enumerate(items, 1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)
