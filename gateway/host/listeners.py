"""The sockets that MQTT clients connect to: opened together, closed in order (G11)."""

import asyncio
import contextlib
from collections.abc import Callable

from websockets.asyncio.server import Server

from gateway.host.proxied import ProxiedProtocol
from gateway.host.proxies import TrustedProxies
from gateway.host.server import HostServer
from gateway.host.tcp import MqttTcpProtocol
from gateway.host.websocket import serve_websocket
from schemas.settings import GatewaySettings

_CLOSE_TIMEOUT_S = 3.0


class Listeners:
    """Open listeners; `close` takes no more clients, `closed` waits until those that are connected have been told."""

    def __init__(self, tcp: asyncio.Server, websocket: Server) -> None:
        self._tcp = tcp
        self._websocket = websocket

    @classmethod
    async def open(cls, server: HostServer, settings: GatewaySettings) -> "Listeners":
        """Raises OSError for an address that cannot be had."""
        loop = asyncio.get_running_loop()
        protocol = _tcp_protocol(server, settings)
        tcp = await loop.create_server(protocol, settings.host, settings.mqtt_port, backlog=1024)
        return cls(tcp, await serve_websocket(server, settings))

    @property
    def mqtt_port(self) -> int:
        return int(self._tcp.sockets[0].getsockname()[1])

    @property
    def websocket_port(self) -> int:
        return int(next(iter(self._websocket.sockets)).getsockname()[1])

    def close(self) -> None:
        self._tcp.close()
        self._websocket.close(close_connections=False)

    async def closed(self) -> None:
        """Once all connections have come to their end, or their time for it is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._tcp.wait_closed()
                await self._websocket.wait_closed()


def _tcp_protocol(server: HostServer, settings: GatewaySettings) -> Callable[[], asyncio.BufferedProtocol]:
    if not settings.proxy_protocol:
        return lambda: MqttTcpProtocol(server)
    trusted = TrustedProxies(settings.trusted_proxies)
    return lambda: ProxiedProtocol(server, trusted)
