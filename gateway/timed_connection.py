"""HTTP connections whose clients must read what is written to them, for the HTTP API and for operators' HTTP."""

import asyncio
from typing import Any, cast

from aiohttp import web


class WriteDeadline:
    """Aborts a connection whose client takes nothing of what is written to it for `timeout_s`, seconds, while `begin`
    has been called and `end` has not. Each byte that is taken renews the time."""

    def __init__(self, transport: asyncio.Transport, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._timer is None:
            self._unsent = self._transport.get_write_buffer_size()
            self._wait()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._look)

    def _look(self) -> None:
        before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if self._unsent < before:
            self._wait()
        else:
            self._timer = None
            self._transport.abort()


class TimedConnection(web.RequestHandler):
    """A connection of aiohttp that ends if its client reads nothing for `write_timeout_s` while it should: when more is
    written than the transport holds, and when the connection closes. aiohttp would keep it for ever."""

    __slots__ = ("_deadline", "_is_served", "_write_timeout_s")

    def __init__(self, server: web.Server, write_timeout_s: float, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._write_timeout_s = write_timeout_s
        self._deadline: WriteDeadline | None = None
        self._is_served = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._deadline = WriteDeadline(cast(asyncio.Transport, transport), self._write_timeout_s)
        super().connection_made(transport)
        assert self._task_handler is not None
        self._task_handler.add_done_callback(self._served)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._deadline is not None:
            self._deadline.begin()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._deadline is not None and not self._is_served:
            self._deadline.end()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._deadline is not None:
            self._deadline.end()
            self._deadline = None
        super().connection_lost(exc)

    def _served(self, _: asyncio.Task[None]) -> None:
        """There are no more requests: the connection closes once all is sent."""
        self._is_served = True
        if self._deadline is not None:
            self._deadline.begin()
