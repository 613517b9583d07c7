"""An HTTP connection: the connection limit, errors that aiohttp finds, and clients that close their side or read
nothing."""

import asyncio
import re
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import RawRequestMessage

from gateway.host.host_server import HostServer
from gateway.http.problems import Problem, problem_response
from gateway.timed_connection import TimedConnection

STREAM = "/v1/stream"
REQUESTS = "/v1/requests/"
"""What the paths of requests begin with."""
_FEED_EVENTS = re.compile("/v1/feeds/[^/]+/events")


def ends_with_client(path: str) -> bool:
    """Whether the answer for this path is a stream of events, or waits for replies: then a client that sends no more
    has left."""
    return path == STREAM or path.startswith(REQUESTS) or _FEED_EVENTS.fullmatch(path) is not None


class HttpConnection(TimedConnection):
    """One connection; one above the limit is closed without an answer. `is_member`: another gateway's, whose requests
    are of clients that are connected there (:mod:`gateway.host.home_calls`)."""

    __slots__ = ("_hosts", "is_ended", "is_member", "request")

    def __init__(
        self, hosts: HostServer, server: web.Server, write_timeout_s: float, *, is_member: bool = False, **options: Any
    ) -> None:
        super().__init__(server, write_timeout_s, **options)
        self._hosts = hosts
        self.is_member = is_member
        self.request: web.BaseRequest | None = None  # the one begun last
        self.is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._hosts.http_connections += 1
        if self._hosts.is_full():
            self._hosts.counts["connections_refused"] += 1
            self.force_close()

    def eof_received(self) -> bool | None:  # type: ignore[override]  # asyncio's signature
        """The client sends no more. It still gets the answers to complete requests. A stream ends, and so does what
        waits for replies, because a client that only listens cannot be told from one that has left. TLS has no
        half-closed connections."""
        if self.request is None or self.ssl_context is not None or (self._waiter is not None and not self._messages):
            return None
        asked = [(self.request.rel_url, self.request.content)]
        asked += [(m.url, payload) for m, payload in self._messages if isinstance(m, RawRequestMessage)]
        self.is_ended = all(payload.is_eof() and not ends_with_client(url.path_safe) for url, payload in asked)
        return self.is_ended or None

    @property
    def is_last(self) -> bool:
        """Whether no request follows the current one."""
        return self.is_ended and not self._messages

    def connection_lost(self, exc: BaseException | None) -> None:
        self._hosts.http_connections -= 1
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers what aiohttp refuses by itself: requests that are not HTTP/1, or too long."""
        if isinstance(exc, LineTooLong):
            problem = Problem(431, "header_too_large", "the request line or a header is too long", close=True)
        else:
            problem = Problem(400, "malformed_request", "the request is not valid HTTP/1.1 or 1.0", close=True)
        self._hosts.counts[f"http_{problem.status}"] += 1
        return problem_response(problem)


def begun(
    message: RawRequestMessage,
    payload: StreamReader,
    connection: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.Request:
    """Creates the request for aiohttp; its connection remembers it."""
    request = web.Request(message, payload, connection, writer, task, asyncio.get_running_loop())
    cast(HttpConnection, connection).request = request
    return request
