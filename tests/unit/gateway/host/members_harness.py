"""Gateways of a cluster on real sockets, whose owners of shards a test says; their certificates (G14)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gateway.host.homes import HomeElsewhere
from gateway.host.member_tls import open_member_tls
from gateway.host.members_listener import open_members_listener
from gateway.members.table import MemberTable
from jobs.runtime.certificates import make
from schemas.settings import process_settings
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway
from tests.unit.gateway.members.heartbeat_records import heartbeat


class StaticHomes:
    """Homes as a test says. `owners`: the gateways that have every client, one after the other; None: this one has
    them, or, if it does not serve, nobody."""

    def __init__(self) -> None:
        self.owners: list[HomeElsewhere | None] = [None]
        self.asked = 0
        self.serves = True
        self.changed: set[int] = set()
        self.references: dict[str, str] = {}
        self.held: asyncio.Event | None = None

    def is_here(self, client: str) -> bool:
        return self.serves and self._present is None

    def elsewhere(self, client: str) -> HomeElsewhere | None:
        return self._present

    def epoch(self, client: str) -> int:
        return 7

    def is_owner(self, home: HomeElsewhere) -> bool:
        return home.epoch not in self.changed

    def reference(self, client: str, bearer: str) -> str | None:
        return self.references.get(bearer)

    async def newer(self, client: str, epoch: int) -> HomeElsewhere | None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()
        return self._present

    @property
    def _present(self) -> HomeElsewhere | None:
        return self.owners[min(self.asked, len(self.owners) - 1)]


class Member:
    """A gateway of a cluster: its homes, and the port for other members."""

    def __init__(self, gateway: SocketGateway, homes: StaticHomes, port: int) -> None:
        self.gateway, self.homes, self.port = gateway, homes, port

    def as_home(self, epoch: int = 1, shard: int = 0) -> HomeElsewhere:
        return HomeElsewhere("home", HOST, self.port, shard, epoch)


@contextmanager
def member(
    directory: Path, name: str, certificates: Path, redirects: bool = False, **settings: Any
) -> Iterator[Member]:
    directory.mkdir()
    cluster = msgspec.structs.replace(
        process_settings({}).gateway.cluster,
        enabled=True,
        server_reference=redirects,
        members_certificate=f"{certificates}/{name}.crt",
        members_key=f"{certificates}/{name}.key",
        members_ca=f"{certificates}/ca.crt",
    )
    with SocketGateway(directory, name=name, cluster=cluster, **settings) as gateway:
        homes, members = StaticHomes(), MemberTable(10, 2.0)
        for known in ("door", "home"):
            members.apply(known, heartbeat(known), 0.0)
        tls = open_member_tls(gateway.settings)
        gateway.call(gateway.server.relay_to, homes, tls)
        at = gateway.run(open_members_listener(gateway.listeners, gateway.settings, tls, members))
        assert at is not None
        yield Member(gateway, homes, at.port)


def make_certificates(directory: Path) -> Path:
    """Of the gateways `door` and `home`, which know each other, of one that they do not know, and of a client."""
    make(directory, [HOST], ["van-7"], 1, lambda _: None, gateways=["door", "home", "stranger"])
    return directory
