"""A home in memory with the HTTP bearer on a real socket, in real time; and clients of it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from gateway.access.enrolment import Enrolment
from gateway.feeds.follower import FeedFollower
from gateway.feeds.service import FeedService
from gateway.host.authenticator import Authenticator
from gateway.host.host_server import HostServer
from gateway.host.tls import ServerTls
from gateway.http.bundles_handler import Mesh
from gateway.http.server import HttpServer
from gateway.members.access_point import AccessPoint
from gateway.members.table import MemberTable
from gateway.mesh.certificate_topic import CertificateTopic
from gateway.mesh.platform import Platform
from schemas.settings import Settings
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.shard.home_harness import HomeHarness

PATIENCE_S = 20.0


class HttpHarness(HomeHarness):
    """`http` are settings of `[gateway.http]`, `gateway` of `[gateway]`, `feeds` of `[feeds]`; `session` speaks to the
    gateway that is up. The access point knows `members`, at first one gateway that is up, and takes `members_now` for
    the time; `owners` has the gateways of clients' sessions. `run` ends all `started`."""

    started: ClassVar[list["HttpHarness"]] = []

    def __init__(
        self,
        directory: Path,
        http: dict[str, Any] | None = None,
        authenticator: Authenticator | None = None,
        gateway: dict[str, Any] | None = None,
        feeds: dict[str, Any] | None = None,
        **limits: int,
    ):
        super().__init__(directory, **limits)
        self._http = http or {}
        self._feeds = feeds or {}
        self._gateway = {"http_port": 0} | (gateway or {})
        self._authenticator = authenticator
        self.session = aiohttp.ClientSession()
        self.started.append(self)
        self.http: HttpServer
        self.hosts: HostServer
        self.ports: dict[str, int] = {}
        self.members: MemberTable
        self.members_now = 0.0
        self.owners: dict[str, str] = {}
        self.platform: Platform
        self.enrolment: Enrolment | None = None
        self.feeds: FeedFollower
        self.feed_service: FeedService

    def settings(self) -> Settings:
        settings = super().settings()
        http = msgspec.structs.replace(settings.gateway.http, **self._http)
        gateway = msgspec.structs.replace(settings.gateway, http=http, **self._gateway)
        feeds = msgspec.structs.replace(settings.feeds, **self._feeds)
        return msgspec.structs.replace(settings, gateway=gateway, feeds=feeds)

    async def start(self) -> "HttpHarness":
        await super().start()
        gateway = self.settings().gateway
        self.hosts = HostServer(
            gateway, self.home, self.clock, lambda: self.bus.in_flight, self.fatal.append, self._authenticator
        )
        self.members = MemberTable(gateway.cluster.members, gateway.cluster.timeout_s)
        self.members.apply("gateway-1", heartbeat("gateway-1"), self.members_now)
        access_point = AccessPoint(
            self.members,
            gateway.access_point,
            Random(1),
            lambda: self.members_now,
            lambda client: self.owners.get(client),
        )
        mesh = None
        if gateway.mesh.enabled:
            self.platform = Platform(gateway.mesh, self.clock)
            certificates = CertificateTopic(
                *(self.bus, self.topics.mesh_certificates, self.platform, gateway.mesh.certificates, self.clock),
                *(self.node.counts, self.fatal.append),
            )
            await certificates.start()
            mesh = Mesh(self.platform, certificates, self.hosts, gateway)
        self.enrolment = Enrolment(gateway.enrolment, time.time) if gateway.enrolment.enabled else None
        feeds = FeedFollower(
            self.bus, self.topics.feeds, self.settings().feeds, "g", self.loop_time, self.clock, self.node.counts
        )
        await feeds.start()
        self.feeds = feeds
        self.feed_service = FeedService(feeds, self.settings().feeds, "", self.loop_time, self.clock)
        self.http = HttpServer(self.hosts, gateway, access_point, self.enrolment, mesh, self.feed_service)
        self.ports = await self.http.open(ServerTls(gateway.tls) if gateway.tls.is_on else None)
        return self

    async def restart(self) -> None:
        """kill -9 and a new gateway."""
        self.crash()
        self.feeds.stop()
        await self.http.stop()
        await self.hosts.stop()
        await self.start()

    async def end(self) -> None:
        await self.session.close()
        self.feeds.stop()
        await self.http.stop()
        await self.hosts.stop()
        await self.stop()

    @property
    def port(self) -> int:
        return self.ports["http"]

    def url(self, target: str, scheme: str = "http") -> URL:
        return URL(f"{scheme}://127.0.0.1:{self.ports[scheme]}{target}", encoded=True)

    async def request(self, method: str, target: str, **options: Any) -> "Answer":
        async with self.session.request(method, self.url(target), **options) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def post(self, target: str, body: bytes = b"x", headers: dict[str, str] | None = None) -> "Answer":
        return await self.request("POST", f"/v1/messages/{target}", data=body, headers=headers)

    async def stored(self) -> list[tuple[str, bytes]]:
        """What is on `ingress`, as (destination, payload)."""
        records = [r for p in range(2) for r in self.broker.partitions[self.topics.ingress, p]]
        return [((r.key() or b"").decode(), r.value() or b"") for r in records]

    @asynccontextmanager
    async def stream(self, query: str = "", **headers: str) -> AsyncIterator["Stream"]:
        """An open stream; headers with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.url(f"/v1/stream{query}"), headers=named) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Of a problem, which it has to be (RFC 9457)."""
        assert self.headers["Content-Type"] == "application/problem+json"
        assert self.json["status"] == self.status
        assert self.json["detail"]
        return str(self.json["reason"])


class Event(NamedTuple):
    id: str
    kind: str
    data: Any


class Stream:
    """Reads server-sent events as they are defined (WHATWG HTML, 9.2.6)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.comments: list[str] = []

    async def event(self) -> Event:
        """The next event; raises EOFError at the stream's end."""
        return await asyncio.wait_for(self._event(), PATIENCE_S)

    async def events(self, count: int) -> list[Event]:
        return [await self.event() for _ in range(count)]

    async def payloads(self, count: int) -> list[str]:
        return [event.data["payload"] for event in await self.events(count)]

    async def rest(self) -> list[Event]:
        """All events up to the stream's end."""
        found = []
        try:
            while True:
                found.append(await self.event())
        except EOFError:
            return found

    async def comment(self) -> str:
        """The next comment; no event may come before it."""
        while not self.comments:
            await asyncio.wait_for(self._line({}), PATIENCE_S)
        return self.comments.pop(0)

    async def _event(self) -> Event:
        fields: dict[str, str] = {}
        while not await self._line(fields) or "data" not in fields:
            pass
        return Event(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))

    async def _line(self, fields: dict[str, str]) -> bool:
        """Whether it was an empty one."""
        line = (await self._response.content.readline()).decode()
        if not line:
            raise EOFError
        name, _, value = line.rstrip("\n").partition(":")
        if line.startswith(":"):
            self.comments.append(value.strip())
        elif name:
            fields[name] = value.removeprefix(" ")
        return line == "\n"


async def until(condition: Any) -> None:
    """Waits until `condition()` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a scenario in real time; whatever a callback raised fails it."""
    raised: list[Any] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        try:
            await scenario
        finally:
            for harness in HttpHarness.started:
                await harness.end()
            fatal = [error for harness in HttpHarness.started for error in harness.fatal]
            HttpHarness.started.clear()
        assert not fatal, fatal

    asyncio.run(watched())
    assert not raised, raised
