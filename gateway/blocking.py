"""Calls that may block for long, each in a thread that the end of the process does not wait for.

A question to a broker that is away blocks its thread until the client's timeout, half a minute at most. A thread pool
would keep the process alive so long, though nobody waits for the answer any more.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_daemon_thread(call: Callable[..., T], *arguments: object) -> "asyncio.Future[T]":
    """The call's result, or what it raises. Who cancels it no longer waits; the call goes on."""
    answer: Future[T] = Future()

    def run() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            result = call(*arguments)
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    threading.Thread(target=run, name=f"blocking-{call.__name__}", daemon=True).start()
    return asyncio.wrap_future(answer)
