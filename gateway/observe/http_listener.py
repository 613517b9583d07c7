"""HTTP for operators on a process's event loop.

A connection serves one request, which must arrive in time and whose answer must be read, and there are only so many:
nobody can block others by holding connections open.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from gateway.timed_connection import TimedConnection

SILENCE_S: Final = 10.0
"""How long a connection may take to send a complete request, and how long it may read nothing of the answer."""

LINE_BYTES: Final = 262_144
"""The longest request line: the console's links name topics of up to 65,535 bytes, each written as %XX."""

_REQUEST_BYTES: Final = 1024


class HttpListener:
    """Serves routes until it is stopped; `middlewares` handle each request. Beyond `connections` at a time further ones
    are closed at once."""

    def __init__(self, connections: int, *middlewares: Any) -> None:
        self._connections = connections
        self._silent: set[asyncio.BaseProtocol | None] = set()
        self._app = web.Application(middlewares=[self._once, *middlewares], client_max_size=_REQUEST_BYTES)
        self._runner = web.AppRunner(self._app, access_log=None, handle_signals=False)
        self._server: asyncio.Server | None = None

    def add_routes(self, routes: Sequence[web.RouteDef]) -> None:
        """Serves these too; call it before `start`."""
        self._app.add_routes(routes)

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port. Raises OSError."""
        await self._runner.setup()
        server = cast(web.Server, self._runner.server)
        loop = asyncio.get_running_loop()

        def accept() -> asyncio.BaseProtocol:
            if len(server.connections) >= self._connections:
                return _Closed()
            protocol = _Connection(server, SILENCE_S, access_log=None, max_line_size=LINE_BYTES)
            self._silent.add(protocol)
            loop.call_later(SILENCE_S, self._end_silent, protocol)
            return protocol

        self._server = await loop.create_server(accept, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    @web.middleware
    async def _once(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Handles the only request of a connection."""
        request.content.on_eof(partial(self._silent.discard, request.protocol))
        try:
            answer: web.StreamResponse = await handler(request)
        except web.HTTPException as refused:  # an answer too: unknown path or wrong method
            refused.force_close()
            raise
        except ConnectionError:
            if request.transport is not None:
                raise
            answer = web.Response(status=408)  # the client has left in the middle of its request: nobody gets this
        answer.force_close()
        return answer

    def _end_silent(self, protocol: web.RequestHandler) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            protocol.force_close()


class _Connection(TimedConnection):
    """Says in a sentence why a request cannot be read; aiohttp's own answer quotes it."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status != 400:
            return super().handle_error(request, status, exc, message)
        if isinstance(exc, LineTooLong):
            text = f"the address is longer than {LINE_BYTES} bytes, or a header than 8190: search for less"
            answer = web.Response(status=431, text=f"{text}\n")
        else:
            answer = web.Response(status=400, text="the request is not valid HTTP/1.1 or 1.0\n")
        answer.force_close()
        return answer


class _Closed(asyncio.Protocol):
    """Closes a connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
