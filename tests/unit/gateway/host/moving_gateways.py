"""Gateways on real sockets that share shards over one broker in memory, on one machine: sockets pass between them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
import uvloop

from gateway.host.arriving import Moves
from gateway.host.authenticator import Authenticator, OpenAuthenticator
from gateway.host.host_server import HostServer
from gateway.host.listeners import Listeners
from gateway.policy.policy_authenticator import PolicyAuthenticator
from gateway.sockets.directory import SocketDirectory
from schemas.identity import shard_of
from tests.unit.gateway.host.raw_client import RawClient
from tests.unit.gateway.host.socket_gateway import HOST, PATIENCE_S
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_harness import SHARDS
from tests.unit.gateway.shard.two_gateways import Gateway

T = TypeVar("T")
NAMES: Final = ("one", "two", "three")


class Host:
    """One gateway, and where clients reach it."""

    def __init__(self, gateway: Gateway, name: str, server: HostServer, listeners: Listeners, moves: Moves) -> None:
        self.gateway, self.name, self.server, self.listeners, self.moves = gateway, name, server, listeners, moves

    @property
    def port(self) -> int:
        return self.listeners.mqtt_port

    def count(self, name: str) -> int:
        return self.server.counts[name] + self.gateway.node.counts[name]


class MovingGateways:
    """`with MovingGateways(tmp_path) as site:`; the first gateways have a shard each, the last one has none. They run
    on a thread with a loop of its own."""

    def __init__(self, directory: Path, authenticator: Authenticator | None = None, **limits: Any) -> None:
        self._directory, self._limits = directory, limits
        self._authenticator = authenticator or OpenAuthenticator()
        self._loop: asyncio.AbstractEventLoop
        self._ready, self._thread = threading.Event(), threading.Thread(target=self._main)
        self._stopping: asyncio.Event
        self._failure: BaseException | None = None
        self.harness: Clustered
        self.hosts: list[Host] = []

    def __enter__(self) -> "MovingGateways":
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the gateways do not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE_S)
        assert self._failure is None, self._failure
        if error is None:
            assert not self.harness.fatal, self.harness.fatal

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the gateways' loop; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def call(self, action: Callable[..., T], *arguments: object) -> T:
        async def run() -> T:
            return action(*arguments)

        return self.run(run())

    # -- shards --------------------------------------------------------------------------------------------------------

    def owner(self, number: int) -> Host:
        gateway = self.harness.owner(number)
        return next(host for host in self.hosts if host.gateway is gateway)

    def home_of(self, client: str) -> Host:
        return self.owner(shard_of(client, SHARDS))

    def client(self, name: str, version: int = 5) -> RawClient:
        """A connection to the gateway that has the client's shard; CONNECT is not sent."""
        return RawClient(self.home_of(name).port, version)

    def give_up(self, number: int, to: Host) -> None:
        """The owner of a shard freezes it, and passes its clients on."""
        self.run(self.owner(number).gateway.home.hand_over(number, to.name))

    def take_over(self, number: int, host: Host) -> None:
        self.run(self.harness.take_over(number, host.gateway))

    def move(self, number: int, to: Host) -> None:
        self.give_up(number, to)
        self.take_over(number, to)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            uvloop.run(self._run())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ready.set()

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self.harness = harness = Clustered(self._directory / "homes")
        harness.limits = self._limits
        await harness.start()
        for gateway, name in zip(harness.gateways, NAMES, strict=True):
            self.hosts.append(await self._host(gateway, name))
        self._ready.set()
        await self._stopping.wait()
        for host in self.hosts:
            host.listeners.close()
            await host.server.stop()
            await host.listeners.closed()
            host.moves.stop()
        for gateway in harness.gateways:
            if gateway.is_up:
                await gateway.home.stop()
                gateway.spools.close()

    async def _host(self, gateway: Gateway, name: str) -> Host:
        node = gateway.node
        own = msgspec.structs.replace(node.settings.gateway, name=name, host=HOST, mqtt_port=0, websocket_port=0)
        node.settings = msgspec.structs.replace(node.settings, gateway=own)
        authenticator = PolicyAuthenticator(self._authenticator, own.policy, node.counts, self._loop.time)
        server = HostServer(
            own,
            gateway.home,
            self.harness.clock,
            lambda: gateway.bus.in_flight,
            self.harness.fatal.append,
            authenticator,
        )
        moves = gateway.home.moved_clients = Moves(server, SocketDirectory(self._directory / "sockets"), name)
        moves.start()
        return Host(gateway, name, server, await Listeners.open(server, own), moves)
