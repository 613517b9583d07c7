"""Serves the metrics over HTTP: `GET /metrics`, one answer a connection (RFC 9112).

Whoever can connect can read; nothing can be changed. So it listens on the loopback address by default. Requests are
bounded in size and time, and connections in number.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from edge.agent.errors import ListenerError
from edge.agent.metrics import CONTENT_TYPE
from edge.agent.settings import MetricsSettings

PATH: Final = "/metrics"
HEAD_BYTES_MAX: Final = 8_192


class MetricsServer:
    """`text` makes the metrics."""

    def __init__(self, settings: MetricsSettings, text: Callable[[], Awaitable[bytes]]) -> None:
        self._settings, self._text = settings, text
        self._server: asyncio.Server | None = None
        self._connections = 0
        self.port = 0

    async def open(self) -> None:
        """Listens. Raises ListenerError."""
        settings = self._settings
        try:
            self._server = await asyncio.start_server(self._serve, settings.host, settings.port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise ListenerError(
                f"metrics cannot be served on {settings.host}:{settings.port}: {error.strerror or error}; set "
                "metrics.port to another port, or end the program that has it"
            ) from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= self._settings.connections:
            writer.close()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                writer.write(await self._answer(reader))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", b"the request is too large\n")
        method, _, rest = head.partition(b" ")
        target, _, version = rest.partition(b"\r\n")[0].partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this is no request of HTTP/1.1\n")
        if target.partition(b"?")[0] != PATH.encode():
            return _response("404 Not Found", b"the metrics are at /metrics\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"use GET\n", "Allow: GET, HEAD\r\n")
        return _response("200 OK", await self._text(), content_type=CONTENT_TYPE, is_head=method == b"HEAD")


def _response(
    status: str, body: bytes, more: str = "", content_type: str = "text/plain; charset=utf-8", *, is_head: bool = False
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else body)
