"""`/metrics`, `/healthz`, `/readyz` and the admin API, over HTTP on the gateway's event loop.

A connection serves one request, which must arrive in time: nobody can block others by holding connections open.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from aiohttp import web

from gateway.observe.admin import AdminApi
from gateway.observe.admission import AdminAccess
from gateway.observe.cluster_admin import ClusterAdmin, ClusterView
from gateway.observe.loop_watch import LoopWatch
from gateway.observe.metrics import Exposition, Sources, gather
from gateway.observe.readiness import Readiness
from gateway.observe.session_stats import SessionStatsCollector
from gateway.observe.system import SystemPublisher
from gateway.shard.home import Home
from schemas.readiness import readiness_report

CONNECTIONS = 100
"""The most HTTP connections at a time; further ones are closed at once."""

SILENCE_S = 10.0
"""How long a connection may take to send a complete request."""


class Observer:
    """The HTTP server, the loop watch and the `$SYS/` topics. `gateway.app` sets `readiness.phase`; `access` says who
    may use what is not open to everyone, `watch` how late the loop is, `stats` what sessions there are. `cluster` is
    what the admin API shows of the cluster; it may be set later, and is None if the gateway is in none."""

    def __init__(self, sources: Sources, home: Home, readiness: Readiness, cluster: ClusterView | None = None) -> None:
        node = sources.node
        settings = node.settings.gateway
        self.readiness = readiness
        self.cluster = cluster
        self.watch = LoopWatch()
        self._sources = sources._replace(
            others=(
                *sources.others,
                node.checkpoint_seconds,
                sources.kafka.produce_seconds,
                sources.kafka.errors,
                self.watch.seconds,
            )
        )
        self.stats = SessionStatsCollector(lambda: home.states)
        self._system = SystemPublisher(node, home, sources.hosts, self.stats) if settings.sys_interval_s else None
        self._exposition = Exposition()
        self._publishing: asyncio.Task[None] | None = None
        self.access = AdminAccess(settings.admin_token_file, node.counts)
        admin = AdminApi(self.access, home, lambda: not readiness.phase)
        self._silent: set[asyncio.BaseProtocol | None] = set()
        self._app = app = web.Application(middlewares=[self._once, admin.guard], client_max_size=1024)
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *admin.routes(),
                *ClusterAdmin(lambda: self.cluster).routes(),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        self._server: asyncio.Server | None = None

    def add_routes(self, routes: Sequence[web.RouteDef]) -> None:
        """Serves these too; call it before `start`."""
        self._app.add_routes(routes)

    async def start(self, host: str, port: int) -> int:
        """Listens and starts monitoring; returns the port. Raises OSError."""
        await self._runner.setup()
        server = cast(web.Server, self._runner.server)

        loop = asyncio.get_running_loop()

        def accept() -> asyncio.BaseProtocol:
            if len(server.connections) >= CONNECTIONS:
                return _Closed()
            protocol = server()
            self._silent.add(protocol)
            loop.call_later(SILENCE_S, self._end_silent, protocol)
            return protocol

        self._server = await loop.create_server(accept, host, port)
        self.watch.start()
        if self._system is not None:
            self._system.begin()
            self._publishing = asyncio.create_task(self._system.run())
            self._publishing.add_done_callback(self._ended)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stops what `start` started."""
        self.watch.stop()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._sources.node.on_fatal(error)

    @web.middleware
    async def _once(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Handles the only request of a connection."""
        self._silent.discard(request.protocol)
        try:
            answer: web.StreamResponse = await handler(request)
        except web.HTTPException as refused:  # an answer too: unknown path or wrong method
            refused.force_close()
            raise
        answer.force_close()
        return answer

    def _end_silent(self, protocol: web.RequestHandler) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            protocol.force_close()

    async def _metrics(self, request: web.Request) -> web.Response:
        families = gather(self._sources, await self.stats.take())
        accept = request.headers.get("Accept", "")
        text, content_type = await asyncio.to_thread(self._exposition.render, families, accept)
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _healthz(self, request: web.Request) -> web.Response:
        """The event loop answers, so the process is alive."""
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        health = await self.readiness.check()
        return web.Response(
            body=msgspec.json.encode(readiness_report(health.faults)),
            status=200 if health.is_ready else 503,
            content_type="application/json",
        )


class _Closed(asyncio.Protocol):
    """Closes a connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
