"""An event loop in a thread of its own: what calls of other threads see of its end."""

import asyncio
import threading

import pytest

from edge.client.errors import ClientClosed
from edge.loop_thread import LoopThread

PATIENCE_S = 10


def test_a_call_that_has_begun_ends_with_the_loop() -> None:
    """Whoever closes the client does not wait for calls of other threads; these must not wait for ever."""
    loop = LoopThread("loop", lambda: ClientClosed("closed"))
    begun, errors = threading.Event(), list[BaseException]()

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            loop.call(never())
        except BaseException as error:
            errors.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert begun.wait(PATIENCE_S)
    loop.stop()
    caller.join(PATIENCE_S)
    assert [type(error) for error in errors] == [ClientClosed]
    with pytest.raises(ClientClosed):
        loop.call(never())


def test_any_number_of_threads_stop_it() -> None:
    loop = LoopThread("loop", lambda: ClientClosed("closed"))
    all_here, errors = threading.Barrier(4), list[BaseException]()

    def stop() -> None:
        all_here.wait(PATIENCE_S)
        try:
            loop.stop()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=stop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not errors
    assert loop.is_stopped
