"""Two gateways of a site over one broker in memory, each with the homes of a shard, and HTTP on real sockets (G14)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Self

import aiohttp
import msgspec
import uvloop
from yarl import URL

from gateway.host.authenticator import Authenticator
from gateway.host.home_calls import HomeCalls
from gateway.host.homes import HomeElsewhere
from gateway.host.host_server import HostServer
from gateway.host.listeners import Listeners
from gateway.host.member_tls import MemberTls
from gateway.http.bundles_handler import Mesh
from gateway.http.server import HttpServer
from gateway.members.access_point import AccessPoint
from gateway.members.table import MemberTable
from gateway.mesh.certificate_topic import CertificateTopic
from gateway.mesh.platform import Platform
from gateway.observe.admin import AdminApi
from gateway.observe.admission import AdminAccess
from schemas.identity import shard_of
from schemas.settings import Settings
from tests.unit.gateway.http.http_harness import PATIENCE_S, Answer, Stream
from tests.unit.gateway.shard.home_harness import SHARDS
from tests.unit.gateway.shard.two_gateways import Gateway, TwoGateways

HOST = "127.0.0.1"


class SiteHomes:
    """What one gateway knows of the owners: what `site` says, unless `believed` says otherwise of a shard."""

    def __init__(self, site: "HttpSite", number: int) -> None:
        self._site = site
        self._number = number
        self.believed: dict[int, HomeElsewhere | None] = {}
        self.wait_s = PATIENCE_S
        """How long an owner is waited for: a test says when there is one."""

    def is_here(self, client: str) -> bool:
        shard, home = shard_of(client, SHARDS), self._site.gateways[self._number].home
        return shard not in self.believed and shard in home.shards

    def elsewhere(self, client: str) -> HomeElsewhere | None:
        shard = shard_of(client, SHARDS)
        if shard in self.believed:
            return self.believed[shard]
        found = self._site.where(shard)
        return None if found.gateway == str(self._number) else found

    def epoch(self, client: str) -> int:
        return self._site.epochs[shard_of(client, SHARDS)]

    def is_owner(self, home: HomeElsewhere) -> bool:
        return self._site.epochs[home.shard] == home.epoch

    def reference(self, client: str, bearer: str) -> str | None:
        return None

    async def newer(self, client: str, epoch: int) -> HomeElsewhere | None:
        shard, loop = shard_of(client, SHARDS), asyncio.get_running_loop()
        deadline = loop.time() + self.wait_s
        while self._site.epochs[shard] < epoch or (self.elsewhere(client) is None and not self.is_here(client)):
            if loop.time() >= deadline:
                return None
            await asyncio.sleep(0.005)
        if epoch:
            self.believed.pop(shard, None)
        return self.elsewhere(client)


class HttpSite(TwoGateways):
    """`servers[n]` is the HTTP bearer of gateway n, which at first has shard n. `http` are settings of
    `[gateway.http]`; `tls`: how each gateway shows who it is."""

    started: ClassVar[list["HttpSite"]] = []

    def __init__(
        self,
        directory: Path,
        http: dict[str, Any] | None = None,
        authenticator: Authenticator | None = None,
        gateway: dict[str, Any] | None = None,
        tls: list[MemberTls] | None = None,
        **limits: Any,
    ) -> None:
        super().__init__(directory, **limits)
        self._http, self._gateway = http or {}, {"http_port": 0} | (gateway or {})
        self._authenticator, self._tls = authenticator, tls
        self.epochs = [1] * SHARDS
        self._owners: dict[int, HomeElsewhere] = {}
        self.homes: list[SiteHomes] = []
        self.hosts: list[HostServer] = []
        self.servers: list[HttpServer] = []
        self.listeners: list[Listeners] = []
        self.admin: list[AdminApi] = []
        self.ports: list[int] = []
        self.session = aiohttp.ClientSession()
        self.started.append(self)

    def settings(self) -> Settings:
        settings = super().settings()
        http = msgspec.structs.replace(settings.gateway.http, **self._http)
        return msgspec.structs.replace(
            settings, gateway=msgspec.structs.replace(settings.gateway, http=http, **self._gateway)
        )

    async def start(self) -> Self:
        await super().start()
        for number, gateway in enumerate(self.gateways):
            await self._open(number, gateway)
        return self

    async def _open(self, number: int, gateway: Gateway) -> None:
        settings, bus = self.settings().gateway, gateway.bus
        hosts = HostServer(
            *(settings, gateway.home, self.clock, lambda: bus.in_flight, self.fatal.append, self._authenticator)
        )
        tls = None if self._tls is None else self._tls[number]
        homes = SiteHomes(self, number)
        hosts.relay_to(homes, tls)
        members = MemberTable(settings.cluster.members, settings.cluster.timeout_s)
        access_point = AccessPoint(members, settings.access_point, Random(1), self.loop_time)
        http = HttpServer(hosts, settings, access_point, mesh=await self._mesh(gateway, hosts))
        self.admin.append(
            AdminApi(AdminAccess(settings.admin_token_file, hosts.counts), gateway.home, hosts, lambda: True)
        )
        listeners = Listeners(hosts)
        await listeners.open_members(HOST, 0, tls, lambda name: name in ("0", "1"))
        self.homes.append(homes)
        self.hosts.append(hosts)
        self.listeners.append(listeners)
        self.servers.append(http)
        self.ports.append((await http.open())["http"])

    async def _mesh(self, gateway: Gateway, hosts: HostServer) -> Mesh | None:
        settings, node = self.settings().gateway, gateway.node
        if not settings.mesh.enabled:
            return None
        platform, mesh = Platform(settings.mesh, self.clock), settings.mesh
        certificates = CertificateTopic(
            *(gateway.bus, self.topics.mesh_certificates, platform, mesh.certificates, self.clock),
            *(node.counts, self.fatal.append),
        )
        await certificates.start()
        return Mesh(platform, certificates, hosts, settings)

    def where(self, shard: int) -> HomeElsewhere:
        """The shard's owner, dead or alive."""
        owner = self.owner(shard)
        if owner is not None:
            self._owners[shard] = self.member(self.gateways.index(owner), shard)
        return self._owners[shard]

    def calls(self, gateway: int) -> HomeCalls:
        relays = self.hosts[gateway].relays
        assert relays is not None
        return relays.calls

    def member(self, number: int, shard: int) -> HomeElsewhere:
        """Gateway `number` as the home of a shard, at the present epoch."""
        return HomeElsewhere(str(number), HOST, self.listeners[number].ports["relay"], shard, self.epochs[shard])

    async def move(self, shard: int, to: int) -> None:
        """A planned move."""
        owner = self.owner(shard)
        assert owner is not None
        await owner.hand_over(shard)
        await self.gateways[to].start_shard(shard)
        self.changed(shard)

    async def move_to_new(self, shard: int) -> None:
        """A planned move to a gateway that is new: number 2."""
        owner = self.owner(shard)
        assert owner is not None
        await owner.hand_over(shard)
        gateway = await self.gateway()
        await gateway.start(shard)
        await self._open(2, gateway)
        self.changed(shard)

    async def take_over(self, shard: int, to: int) -> None:
        """The owner is killed, and another starts the shard."""
        owner = self.owner(shard)
        assert owner is not None
        await self.end_gateway(self.gateways.index(owner))
        await self.gateways[to].start_shard(shard)
        self.changed(shard)

    def changed(self, shard: int) -> None:
        self.epochs[shard] += 1
        for hosts in self.hosts:
            assert hosts.relays is not None
            hosts.relays.owner_changed(shard)

    async def end_gateway(self, number: int) -> None:
        """kill -9: its connections break, and nobody listens."""
        self.gateways[number].kill()
        self.listeners[number].close()
        for connection in list(self.servers[number]._server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self.servers[number].stop()
        await self.hosts[number].stop()

    async def end(self) -> None:
        await self.session.close()
        for number, gateway in enumerate(self.gateways):
            if gateway.is_up and number < len(self.servers):
                self.listeners[number].close()
                await self.servers[number].stop()
                await self.hosts[number].stop()
                gateway.kill()

    def url(self, gateway: int, target: str) -> URL:
        return URL(f"http://{HOST}:{self.ports[gateway]}{target}", encoded=True)

    async def ask(self, gateway: int, method: str, target: str, **options: Any) -> Answer:
        async with self.session.request(method, self.url(gateway, target), **options) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def keyed(self, gateway: int, client: str, key: str, body: bytes = b"x", target: str = "a") -> Answer:
        headers = {"X-Client-Id": client, "Idempotency-Key": key}
        return await self.ask(gateway, "POST", f"/v1/messages/{target}", data=body, headers=headers)

    @asynccontextmanager
    async def stream(self, gateway: int, query: str = "", **headers: str) -> AsyncIterator[Stream]:
        """An open stream; headers with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.url(gateway, f"/v1/stream{query}"), headers=named) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)

    def stored(self) -> list[bytes]:
        """The payloads on `ingress`."""
        return [r.value() or b"" for p in range(2) for r in self.broker.partitions[self.topics.ingress, p]]

    def count(self, gateway: int, name: str) -> int:
        return self.hosts[gateway].counts[name]


def client_of(shard: int, user: str = "") -> str:
    """A name whose client id over HTTP has its home in the shard."""
    prefix = f"http-{user}:" if user else "http:"
    return next(name for name in (f"c{n}" for n in range(99)) if shard_of(prefix + name, SHARDS) == shard)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a scenario in real time; whatever a callback raised fails it."""
    raised: list[Any] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        try:
            await scenario
        finally:
            sites = list(HttpSite.started)
            HttpSite.started.clear()
            for site in sites:
                await site.end()
        fatal = [error for site in sites for error in site.fatal]
        assert not fatal, fatal

    uvloop.run(watched())
    assert not raised, raised
