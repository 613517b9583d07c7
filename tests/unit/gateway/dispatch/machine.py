"""A dispatcher and the gateways of its machine, in one process, over real sockets. Each gateway answers with its name
and what it has read."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec

from gateway.dispatch.choice import Choice
from gateway.dispatch.dispatcher import Dispatcher
from gateway.host.dispatched import DispatchedClients
from gateway.members.table import MemberTable
from gateway.sockets.directory import SocketDirectory
from mqtt.encode import encode
from mqtt.packets import Connect
from schemas.members import GatewayLoad
from schemas.settings import load_settings
from tests.unit.gateway.members.heartbeat_records import heartbeat

HOST = "127.0.0.1"
SETTINGS = load_settings([Path("conf/base.toml")], {}).gateway


def connect_of(client: str, version: int = 4) -> bytes:
    return encode(Connect(client_id=client, version=version), version)


class Server(asyncio.Protocol):
    """What a gateway reads from a client."""

    def __init__(self, gateway: "StandIn") -> None:
        self._gateway = gateway

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._gateway.clients.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._gateway.name.encode() + b":" + data)


class StandIn:
    """A gateway that is there until it is closed."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.clients: list[asyncio.Transport] = []
        self.counts = Counter[str]()
        self._taking = DispatchedClients(directory, name, lambda: Server(self), self.counts)

    def drain(self) -> None:
        self._taking.close()

    def close(self) -> None:
        self._taking.close()
        for one in self.clients:
            one.abort()


class Machine:
    """`owners` says who owns a client; every gateway in `loads` writes heartbeats, with so many connections."""

    def __init__(self, directory: Path, owners: Mapping[str, str], loads: Mapping[str, int], **settings: Any) -> None:
        self.path, self.owners = directory, dict(owners)
        self.members = MemberTable(10, 60.0)
        loop = asyncio.get_running_loop()
        for name, connections in loads.items():
            self.members.apply(name, heartbeat(name, load=GatewayLoad(connections=connections)), loop.time())
        self.counts = Counter[str]()
        self.standbys: dict[str, tuple[str, ...]] = {}
        self.directory = SocketDirectory(directory)
        choice = Choice(
            self.owners.get,
            lambda client: self.standbys.get(client, ()),
            self.members,
            SETTINGS.access_point,
            Random(1),
            loop.time,
        )
        is_proxied = settings.pop("is_proxied", False)
        changed = msgspec.structs.replace(SETTINGS.dispatcher, **settings)
        self.dispatcher = Dispatcher(changed, is_proxied, self.directory, choice, self.counts)
        listening = socket.create_server((HOST, 0))
        self.port = listening.getsockname()[1]
        self.dispatcher.accept_from([listening])
        self._gateways: list[StandIn] = []
        self._clients: list[asyncio.StreamWriter] = []

    def gateway(self, name: str) -> StandIn:
        made = StandIn(self.path, name)
        self._gateways.append(made)
        return made

    async def client(self, *pieces: bytes) -> asyncio.StreamReader:
        """Connects and sends; each piece comes alone."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(writer)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        return reader

    @property
    def last_client(self) -> asyncio.StreamWriter:
        return self._clients[-1]

    async def close(self) -> None:
        for writer in self._clients:
            writer.close()
        for gateway in self._gateways:
            gateway.close()
        self.dispatcher.accept_no_more()
        await self.dispatcher.finish(0.0, at_once=True)
        while len(self.dispatcher.processes):
            await asyncio.sleep(0)
        self.directory.close()
        assert self.dispatcher.open == 0


@asynccontextmanager
async def machine(
    directory: Path, owners: Mapping[str, str], loads: Mapping[str, int], **settings: Any
) -> AsyncIterator[Machine]:
    made = Machine(directory, owners, loads, **settings)
    try:
        yield made
    finally:
        await made.close()


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)
