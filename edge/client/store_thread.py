"""A store and the one thread that uses it: how both are opened and released, and who learns of a failure (M2)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from edge.completion import completed


class Closable(Protocol):
    """A store as far as this is concerned."""

    def close(self) -> None:
        """Releases the file."""


S = TypeVar("S", bound=Closable)
R = TypeVar("R")


async def opened(thread: ThreadPoolExecutor, open_store: Callable[[], S], recover: Callable[[S], R]) -> tuple[S, R]:
    """Opens a store on its thread, and what `recover` finds in it. If that fails, or the caller is cancelled, store and
    thread are released. Raises StoreError."""
    loop = asyncio.get_running_loop()
    open_stores: list[S] = []

    def open_it() -> tuple[S, R]:
        store = open_store()
        open_stores.append(store)
        return store, recover(store)

    def close_it() -> None:
        for store in open_stores:
            store.close()

    try:
        return await loop.run_in_executor(thread, open_it)
    except BaseException:
        closing = loop.run_in_executor(thread, close_it)  # behind `open_it`, which goes on if the caller is cancelled
        thread.shutdown(wait=False)
        await completed(closing)
        raise


async def released(thread: ThreadPoolExecutor, store: Closable) -> None:
    """Releases the store, after all calls so far, and its thread."""
    await asyncio.get_running_loop().run_in_executor(thread, store.close)
    thread.shutdown(wait=False)


def fail(future: asyncio.Future[None] | None, error: BaseException) -> None:
    """Whoever waits for it gets the error; nobody has to wait."""
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()
