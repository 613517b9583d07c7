"""Work that is given up at some moment: what it holds must be let go."""

import asyncio
from collections.abc import Coroutine
from typing import Any

MOMENTS = 24
"""Turns of the event loop in which a connection over TLS to this machine is made."""


async def given_up(work: Coroutine[Any, Any, Any], turns: int) -> None:
    """Cancels `work` after so many turns of the loop, and waits for its end."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
