"""`/metrics`, `/healthz`, `/readyz` and the admin API, over HTTP on the gateway's event loop."""

import asyncio
from collections.abc import Sequence

import msgspec
from aiohttp import web

from gateway.listening import listening
from gateway.observe.admin import AdminApi
from gateway.observe.admission import AdminAccess
from gateway.observe.cluster_admin import ClusterAdmin, ClusterView
from gateway.observe.exposition import Exposition
from gateway.observe.http_listener import HttpListener
from gateway.observe.loop_watch import LoopWatch
from gateway.observe.metrics import Sources, gather
from gateway.observe.readiness import Readiness
from gateway.observe.session_stats import SessionStatsCollector
from gateway.observe.system import SystemPublisher
from gateway.shard.home import Home
from schemas.readiness import readiness_report

CONNECTIONS = 100


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
        admin = AdminApi(self.access, home, sources.hosts, lambda: not readiness.phase)
        self._listener = HttpListener(CONNECTIONS, admin.guard)
        self.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *admin.routes(),
                *ClusterAdmin(lambda: self.cluster).routes(),
            ]
        )

    def add_routes(self, routes: Sequence[web.RouteDef]) -> None:
        """Serves these too; call it before `start`."""
        self._listener.add_routes(routes)

    async def start(self, host: str, port: int) -> int:
        """Listens and starts monitoring; returns the port. Raises SettingsError for an address that cannot
        be used."""
        with listening("gateway.metrics_port", host, port):
            opened = await self._listener.start(host, port)
        self.watch.start()
        if self._system is not None:
            self._system.begin()
            self._publishing = asyncio.create_task(self._system.run())
            self._publishing.add_done_callback(self._ended)
        return opened

    async def stop(self) -> None:
        """Stops what `start` started."""
        self.watch.stop()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        await self._listener.stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._sources.node.on_fatal(error)

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
