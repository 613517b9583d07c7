"""Calls in threads that the end of the process does not wait for."""

import asyncio
import threading

import pytest

from gateway.blocking import in_daemon_thread


def test_it_gives_what_the_call_gives() -> None:
    async def scenario() -> None:
        assert await in_daemon_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await in_daemon_thread(divmod, 7, 0)

    asyncio.run(scenario())


def test_the_loop_goes_on_meanwhile_and_need_not_wait() -> None:
    async def scenario() -> None:
        done = threading.Event()
        waiting = in_daemon_thread(done.wait)
        await asyncio.sleep(0)
        assert not waiting.done()
        done.set()
        assert await waiting
        abandoned = in_daemon_thread(done.wait)
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned

    asyncio.run(scenario())
