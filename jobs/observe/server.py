"""`/metrics`, `/healthz` and `/readyz` of a Spark application over HTTP (aiohttp), on a thread of its own, and what
else an application has to say.

A connection serves one request, and the time and the number of connections are limited, so that nobody can block others
by holding connections.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import NamedTuple, cast

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from jobs.errors import JobError

CONNECTIONS = 20
"""HTTP connections at a time; further ones are closed on arrival."""

LONGEST_S = 10.0
"""How long a connection may be open."""

LOOK_S = 0.5
"""How often an address is tried that another process has, and how long stopping waits for responses."""

Report = Callable[[], dict[str, object]]


class ListenAddress(NamedTuple):
    """Where to listen (port 0: any free one), and the settings that configure it."""

    host: str
    port: int
    host_setting: str
    port_setting: str

    def listen(self) -> socket.socket:
        """`::` is all addresses, those of IPv4 too. Raises OSError, OverflowError."""
        if ":" not in self.host:
            return socket.create_server((self.host, self.port))
        dual = socket.has_dualstack_ipv6()
        return socket.create_server((self.host, self.port), family=socket.AF_INET6, dualstack_ipv6=dual)


class ObserverServer:
    """Serves `registry`, the readiness in `report` (`{"ready": bool, "parts": …}`), and `routes`, until stopped.

    Listens from the start. Raises JobError if the port is taken or the address is not of this machine. With
    `awaits_address` it listens as soon as it can instead: a process that replaces another starts alongside it.
    """

    def __init__(
        self,
        listen_at: ListenAddress,
        registry: CollectorRegistry,
        report: Report,
        awaits_address: bool = False,
        routes: Sequence[web.RouteDef] = (),
    ) -> None:
        self._listen_at = listen_at
        self._registry = registry
        self._report = report
        self._routes = routes
        self._stopped = Event()
        listener: socket.socket | None = None
        try:
            listener = listen_at.listen()
        except (OSError, OverflowError) as error:
            if not awaits_address:
                raise JobError(
                    f"cannot serve metrics on {listen_at.host}:{listen_at.port}: {error}; "
                    f"set {listen_at.host_setting} to an address of this machine and "
                    f"{listen_at.port_setting} to a free port, or to 0 for any free one"
                ) from error
        shown = f"[{listen_at.host}]" if ":" in listen_at.host else listen_at.host
        self.address = f"{shown}:{listener.getsockname()[1] if listener else listen_at.port}"
        """`host:port`."""
        self._thread = Thread(target=self._run, args=(listener,), name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self, listener: socket.socket | None) -> None:
        while listener is None and not self._stopped.wait(LOOK_S):
            with suppress(OSError):  # the process before us has not released it yet
                listener = self._listen_at.listen()
        if listener is not None:
            asyncio.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        app = web.Application(middlewares=[_once])
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", _alive),
                web.get("/livez", _alive),
                web.get("/readyz", self._readyz),
                *self._routes,
            ]
        )
        runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=LOOK_S)
        await runner.setup()
        requests = cast(web.Server, runner.server)
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(requests), sock=listener)
        await asyncio.to_thread(self._stopped.wait)
        server.close()
        await runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        names = request.query.getall("name[]", [])
        wanted = self._registry.restricted_registry(names) if names else self._registry
        text = await asyncio.to_thread(encode, wanted)
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    async def _readyz(self, request: web.Request) -> web.Response:
        health = self._report()
        return web.json_response(health, status=200 if health["ready"] else 503)


async def _alive(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


@web.middleware
async def _once(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Ends the connection after its request."""
    try:
        response = await handler(request)
    except web.HTTPException as refused:  # unknown path or wrong method
        refused.force_close()
        raise
    response.force_close()
    return response


class _Connection(web.RequestHandler):
    def __init__(self, server: web.Server) -> None:
        super().__init__(server, loop=asyncio.get_running_loop())
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._server.connections) > CONNECTIONS:
            self.force_close()
        self._end = self._loop.call_later(LONGEST_S, cast(asyncio.Transport, transport).abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answers a malformed request without a line in the log: that is the client's mistake."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        response = web.Response(status=status, text=f"{message}\n")
        response.force_close()
        return response
