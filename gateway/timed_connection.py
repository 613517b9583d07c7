"""HTTP connections whose clients must read what is written to them, for the HTTP API and for operators' HTTP."""

import asyncio
import socket
import struct
from typing import Any, Final, cast

from aiohttp import web

TLS_CLOSE_S: Final = 86_400.0
"""Seconds for all of the close of a TLS connection, what is still to be sent included. It is no real limit: that of
asyncio, 30 s, would end clients that read slowly, and WriteDeadline ends those that read nothing."""

_ACKNOWLEDGED: Final = struct.Struct("=120xQ")  # struct tcp_info of linux/tcp.h, up to tcpi_bytes_acked


class WriteDeadline:
    """Aborts a connection whose client takes nothing of what is written to it for `timeout_s`, seconds, while `begin`
    has been called and `end` has not. Each byte that is taken renews the time: one that leaves the transport, or, on
    Linux, one that the client's system acknowledges. The system may have megabytes that the transport no longer has."""

    def __init__(self, transport: asyncio.Transport, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._unsent = self._acknowledged = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._timer is None:
            self._measure()
            self._wait()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._look)

    def _look(self) -> None:
        unsent, acknowledged = self._unsent, self._acknowledged
        self._measure()
        if self._unsent < unsent or self._acknowledged > acknowledged:
            self._wait()
        else:
            self._timer = None
            self._transport.abort()

    def _measure(self) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._acknowledged = _acknowledged(self._transport)


def _acknowledged(transport: asyncio.Transport) -> int:
    """Bytes that the client's system has acknowledged since the connection began; 0 if this system cannot tell (Linux
    can: tcp(7), TCP_INFO)."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
    except (OSError, ValueError):  # ValueError: it is closed
        return 0
    return int(_ACKNOWLEDGED.unpack(info)[0]) if len(info) == _ACKNOWLEDGED.size else 0


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
