"""The sockets that MQTT clients connect to: over TCP and WebSocket, each also with TLS, and over QUIC (G11)."""

import asyncio
import contextlib
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from websockets.asyncio.server import Server

from gateway.host.drain import until
from gateway.host.host_server import HostServer
from gateway.host.member_tls import MemberTls
from gateway.host.proxied import ProxiedProtocol
from gateway.host.proxies import TrustedProxies
from gateway.host.relayed import MemberProtocol
from gateway.host.tcp import MqttTcpProtocol
from gateway.host.tls import ServerTls, handshake_of
from gateway.host.websocket import serve_websocket
from gateway.listening import listening, open_tcp
from schemas.sections import OFF
from schemas.settings import GatewaySettings

if TYPE_CHECKING:  # imported when used: aioquic takes memory
    from gateway.host.quic_listener import QuicListener
    from gateway.host.quic_tls import QuicTls

_CLOSE_TIMEOUT_S = 3.0
_SETTINGS: Final = MappingProxyType(
    {
        "mqtt": "gateway.mqtt_port",
        "websocket": "gateway.websocket_port",
        "mqtts": "gateway.tls.mqtts_port",
        "wss": "gateway.tls.wss_port",
        "quic": "gateway.tls.quic_port",
        "relay": "gateway.cluster.members_port",
    }
)

Protocol = Callable[[], asyncio.BufferedProtocol]


class Listeners:
    """Open listeners; `ports` by name. `close` accepts no more clients; `closed` waits until all have disconnected."""

    def __init__(self, server: HostServer) -> None:
        self._server = server
        self.ports: dict[str, int] = {}
        self._tcp: list[asyncio.Server] = []
        self.websockets: list[Server] = []
        self.quic: list[QuicListener] = []

    @classmethod
    async def open(
        cls,
        server: HostServer,
        settings: GatewaySettings,
        tls: ServerTls | None = None,
        quic: "QuicTls | None" = None,
    ) -> "Listeners":
        """Opens the configured listeners; those with TLS only if `tls` is given, and QUIC if `quic` is. Raises
        SettingsError for an address that cannot be used."""
        listeners = cls(server)
        await listeners._open_tcp("mqtt", settings.host, settings.mqtt_port, tcp_protocol(server, settings))
        await listeners._open_websocket("websocket", server, settings, settings.websocket_port)
        if tls is not None:
            secure = settings.tls
            await listeners._open_tcp("mqtts", settings.host, secure.mqtts_port, lambda: MqttTcpProtocol(server), tls)
            await listeners._open_websocket("wss", server, settings, secure.wss_port, tls)
        if quic is not None:
            await listeners._open_quic(server, settings, quic)
        return listeners

    @property
    def mqtt_port(self) -> int:
        return self.ports["mqtt"]

    @property
    def websocket_port(self) -> int:
        return self.ports["websocket"]

    def close(self) -> None:
        for tcp in self._tcp:
            tcp.close()
        for websocket in self.websockets:
            websocket.close(close_connections=False)
        for quic in self.quic:
            quic.close()

    async def closed(self) -> None:
        """Returns once all connections have ended or the time-out has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                # Not the servers' own `wait_closed`: uvloop's does not wait for connected clients.
                await until(lambda: not self._server.transports, _CLOSE_TIMEOUT_S)
                for websocket in self.websockets:
                    await websocket.wait_closed()
        for quic in self.quic:
            quic.closed()

    async def open_members(self, host: str, port: int, tls: MemberTls | None, is_member: Callable[[str], bool]) -> int:
        """Also listens for connections that other gateways relay (G14); returns the port. With `tls` only gateways for
        which `is_member` says so get in. Raises SettingsError for an address that cannot be used."""
        server = None if tls is None else tls.server
        known = None if tls is None else is_member
        await self._open_tcp("relay", host, port, lambda: MemberProtocol(self._server, known), server)
        return self.ports["relay"]

    async def _open_tcp(
        self, name: str, host: str, port: int | str, protocol: Protocol, tls: ServerTls | None = None
    ) -> None:
        if isinstance(port, str):  # off
            return
        tcp = await open_tcp(_SETTINGS[name], host, port, protocol, tls)
        self._tcp.append(tcp)
        self.ports[name] = int(tcp.sockets[0].getsockname()[1])

    async def _open_websocket(
        self, name: str, server: HostServer, settings: GatewaySettings, port: int | str, tls: ServerTls | None = None
    ) -> None:
        if isinstance(port, str):
            return
        with listening(_SETTINGS[name], settings.host, port):
            websocket = await serve_websocket(server, settings, port, *handshake_of(tls))
        self.websockets.append(websocket)
        self.ports[name] = int(next(iter(websocket.sockets)).getsockname()[1])

    async def _open_quic(self, server: HostServer, settings: GatewaySettings, tls: "QuicTls") -> None:
        port = settings.tls.quic_port
        if isinstance(port, str):
            return
        from gateway.host.quic_listener import open_quic

        with listening(_SETTINGS["quic"], settings.host, port):
            self.quic, self.ports["quic"] = await open_quic(server, settings.host, port, tls)


def open_quic_tls(settings: GatewaySettings) -> "QuicTls | None":
    """The certificates for QUIC, None if its listener is off. Raises SettingsError if the files cannot be used."""
    if settings.tls.quic_port == OFF:
        return None
    from gateway.host.quic_tls import QuicTls

    return QuicTls(settings.tls, settings.limits)


def tcp_protocol(server: HostServer, settings: GatewaySettings) -> Protocol:
    """What reads from a client of MQTT over TCP."""
    if not settings.proxy_protocol:
        return lambda: MqttTcpProtocol(server)
    trusted = TrustedProxies(settings.trusted_proxies)
    return lambda: ProxiedProtocol(server, trusted)
