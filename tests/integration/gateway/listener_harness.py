"""A gateway's listeners on real sockets, with a home in memory, and real clients that connect to them."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.access.access import Access, open_access
from gateway.host.host_server import HostServer
from gateway.host.listeners import Listeners, open_quic_tls
from gateway.host.tls import ServerTls
from schemas.settings import GatewaySettings, load_settings
from tests import paho_client
from tests.unit.gateway.shard.home_harness import HomeHarness
from tests.unit.schemas.test_settings_errors import overlay

PATIENCE_S = 20.0


class Ended(NamedTuple):
    """How a program ended, and what it said."""

    status: int
    said: str


class ListenerHarness:
    """Everything around the listeners. `changes` are TOML keys of `[gateway]`."""

    def __init__(self, directory: Path, changes: str) -> None:
        self._directory = directory
        ports = "mqtt_port = 0\nwebsocket_port = 0\n"
        self.settings: GatewaySettings = load_settings(overlay(directory, f"[gateway]\n{ports}{changes}"), {}).gateway
        self.harness: HomeHarness
        self.server: HostServer
        self.access: Access
        self.tls: ServerTls | None = None
        self.quic: Any = None
        self.ahead_s = 0.0
        self._listeners: Listeners
        self._clients: list[Paho] = []

    async def open(self) -> "ListenerHarness":
        self.harness = await HomeHarness(self._directory).start()
        harness = self.harness
        self.access = open_access(self.settings, self.clock, harness.node.counts)
        if self.access.authorizer is not None:
            self.access.authorizer.changed = harness.home.rules_changed
        self.tls = ServerTls(self.settings.tls) if self.settings.tls.is_on else None
        self.server = HostServer(
            self.settings,
            harness.home,
            self.clock,
            lambda: harness.bus.in_flight,
            harness.fatal.append,
            self.access.authenticator,
        )
        self.quic = open_quic_tls(self.settings)
        self._listeners = await Listeners.open(self.server, self.settings, self.tls, self.quic)
        return self

    async def close(self) -> None:
        self._listeners.close()
        await self.server.stop()
        for client in self._clients:
            await asyncio.to_thread(client.leave)
        self.access.authenticator.close()
        await self.harness.stop()
        assert not self.harness.fatal

    def clock(self) -> float:
        """What the gateway takes for the time: `ahead_s` later than it is."""
        return self.harness.clock() + self.ahead_s

    def port(self, listener: str = "mqtt") -> int:
        return self._listeners.ports[listener]

    async def refresh(self) -> None:
        """Changed files are read, as within a second."""
        used = (tls.files for tls in (self.tls, self.quic) if tls is not None)
        for file in (*self.access.files, *used):
            await file.refresh()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"not in time: {what}"
            await asyncio.sleep(0.01)

    async def pub(self, *arguments: str, listener: str = "mqtt") -> Ended:
        """Runs mosquitto_pub; MQTT 5, QoS 1 unless told otherwise."""
        where = ("-h", "127.0.0.1", "-p", str(self.port(listener)), "-V", "5", "-q", "1")
        program = await asyncio.create_subprocess_exec(
            "mosquitto_pub",
            *where,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(program.communicate(), PATIENCE_S)
        assert program.returncode is not None
        return Ended(program.returncode, said.decode())

    def client(self, name: str, **options: Any) -> "Paho":
        client = Paho(name, **options)
        self._clients.append(client)
        return client


class Paho:
    """A paho client, its network loop on a thread of its own."""

    def __init__(
        self,
        name: str,
        *,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        websocket: bool = False,
        version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5,
    ) -> None:
        self.connack: Any = None
        self.disconnect_code: Any = None
        self.is_gone = False
        self.subacks: list[Any] = []
        self.got: list[tuple[str, bytes]] = []
        self._mqtt = paho_client.Paho(
            CallbackAPIVersion.VERSION2,
            name,
            transport="websockets" if websocket else "tcp",
            protocol=version,
            reconnect_on_failure=False,
        )
        if user is not None or password is not None:
            self._mqtt.username_pw_set(user, password)
        if tls is not None:
            self._mqtt.tls_set_context(tls)
        self._mqtt.on_connect = lambda *a: setattr(self, "connack", a[3])
        self._mqtt.on_disconnect = self._disconnected
        self._mqtt.on_subscribe = lambda *a: self.subacks.extend(a[3])
        self._mqtt.on_message = lambda *a: self.got.append((a[2].topic, a[2].payload))

    async def connect(self, gateway: ListenerHarness, listener: str = "mqtt", *, kept_s: int = 0) -> str:
        """The CONNACK's reason in words."""
        self.connack, self.is_gone = None, False
        properties: Any = None
        if kept_s:
            properties = mqtt.Properties(mqtt.PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = kept_s
        options: dict[str, Any] = {"clean_start": not kept_s, "properties": properties} if kept_s else {}
        await asyncio.to_thread(self._mqtt.connect, "127.0.0.1", gateway.port(listener), **options)
        self._mqtt.loop_start()
        await gateway.until(lambda: self.connack is not None, "CONNACK")
        return str(self.connack)

    async def subscribe(self, gateway: ListenerHarness, topic_filter: str) -> str:
        """The SUBACK's reason in words."""
        self.subacks.clear()
        self._mqtt.subscribe(topic_filter, 1)
        await gateway.until(lambda: self.subacks, "SUBACK")
        return str(self.subacks[0])

    def publish(self, topic: str, payload: str) -> None:
        self._mqtt.publish(topic, payload, 1)

    def leave(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def _disconnected(self, *arguments: Any) -> None:
        self.disconnect_code, self.is_gone = str(arguments[3]), True


def trusting(authority: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """A client's TLS that trusts `authority` alone."""
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
