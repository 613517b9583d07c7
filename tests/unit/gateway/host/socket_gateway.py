"""A gateway on real sockets for tests with real clients; Kafka, routers and spool are their twins in memory."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
import uvloop

from gateway.host.authenticator import OpenAuthenticator
from gateway.host.host_server import HostServer
from gateway.host.listeners import Listeners, open_quic_tls
from gateway.policy.policy_authenticator import PolicyAuthenticator
from schemas.settings import GatewaySettings
from tests.unit.gateway.shard.home_harness import HomeHarness

HOST = "127.0.0.1"
PATIENCE_S = 20.0

PACKET_BYTES = 4096
"""The largest packet that the gateway of the conftest takes."""

T = TypeVar("T")


class SocketGateway:
    """`with SocketGateway(tmp_path, limits={…}, **settings) as gateway:`; runs on a thread with a loop of its own.

    `settings` are keys of `[gateway]`, `limits` of `[gateway.limits]`, `tls` of `[gateway.tls]`; ports are picked. Of
    the listeners with TLS only that of QUIC is opened, if it is on.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limits: dict[str, Any] | None = None,
        tls: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._directory = directory
        self._limits, self._tls = limits or {}, tls or {}
        self._settings = {"host": HOST, "mqtt_port": 0, "websocket_port": 0} | settings
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._stopping: asyncio.Event
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main)
        self.harness: HomeHarness
        self.server: HostServer
        self.settings: GatewaySettings
        self.listeners: Listeners
        self.mqtt_port = self.websocket_port = 0
        self.quic: Any = None
        self.left_open = 0

    def __enter__(self) -> "SocketGateway":
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the gateway does not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        assert self._failure is None, self._failure
        if error is None:
            assert not self.harness.fatal, self.harness.fatal

    def begin_to_stop(self) -> None:
        with suppress(RuntimeError):  # its loop is closed: it has stopped
            self._loop.call_soon_threadsafe(self._stopping.set)

    def stop(self) -> None:
        """Stops it as `gateway.app` does; may be called again."""
        if self._thread.is_alive():
            self.begin_to_stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the gateway does not stop"

    def call(self, action: Callable[..., T], *arguments: object) -> T:
        """Runs `action` on the gateway's loop; its result."""

        async def run() -> T:
            return action(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the gateway's loop; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    @property
    def quic_port(self) -> int:
        return self.listeners.ports["quic"]

    def count(self, name: str) -> int:
        """An event of the metrics."""
        return self.server.counts[name] + self.harness.node.counts[name]

    def _main(self) -> None:
        try:
            uvloop.run(self._run())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ready.set()

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self.harness = harness = await HomeHarness(self._directory, **self._limits).start()
        gateway = harness.settings().gateway
        tls = msgspec.structs.replace(gateway.tls, **self._tls)
        self.settings = gateway = msgspec.structs.replace(gateway, tls=tls, **self._settings)
        authenticator = PolicyAuthenticator(OpenAuthenticator(), gateway.policy, harness.node.counts, self._loop.time)
        self.server = HostServer(
            gateway, harness.home, harness.clock, lambda: harness.bus.in_flight, harness.fatal.append, authenticator
        )
        self.quic = open_quic_tls(gateway)
        self.listeners = listeners = await Listeners.open(self.server, gateway, None, self.quic)
        self.mqtt_port, self.websocket_port = listeners.mqtt_port, listeners.websocket_port
        self._ready.set()
        await self._stopping.wait()
        listeners.close()
        await self.server.stop()
        await listeners.closed()
        self.left_open = len(self.server.transports)
        await harness.stop()
