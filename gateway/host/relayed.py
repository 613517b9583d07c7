"""Connections that other gateways relay: the listener for members, and the transport of one of them (G14).

The listener takes members of the cluster only, by mutual TLS. Each connection begins with a PROXY header
(:mod:`gateway.host.relay_header`) that names the client, then has its MQTT stream. What is written to it begins with
the answer that :mod:`gateway.host.relay` expects. A connection whose bearer is HTTP has requests instead.
"""

import asyncio
from typing import Final

from gateway.errors import ProxyHeaderError
from gateway.host import relay_header
from gateway.host.host_server import HostServer
from gateway.host.proxied import ProxiedProtocol
from gateway.host.proxies import TrustedProxies
from gateway.host.relay import ACCEPTED
from gateway.host.relay_header import HTTP, RelayedClient
from gateway.host.tcp import MqttTcpProtocol

_ANYBODY: Final = TrustedProxies(["0.0.0.0/0", "::/0"])
"""TLS has shown that the peer is a member, wherever it is."""


class MemberProtocol(ProxiedProtocol):
    """Reads the header; then the connection is the client's, or takes requests."""

    def __init__(self, server: HostServer) -> None:
        super().__init__(server, _ANYBODY)

    def take(self, header: bytes) -> asyncio.BaseProtocol:
        client = relay_header.decode(header)
        if client.bearer != HTTP:
            return RelayedTransport(self._server, client)
        if self._server.member_http is None:
            raise ProxyHeaderError("this gateway does not take requests of other gateways yet")
        return self._server.member_http()


class RelayedTransport(MqttTcpProtocol):
    """The transport of a client whose bytes another gateway relays."""

    def __init__(self, server: HostServer, client: RelayedClient) -> None:
        super().__init__(server)
        self._client = client
        self._has_answered = self._is_refused = False
        self.bearer = client.bearer
        self.refuse = self._answer_only

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer, self.certificate = self._client.peer, self._client.certificate

    def write(self, data: bytes) -> None:
        if self._is_refused:
            return
        if not self._has_answered:
            self._has_answered = True
            data = ACCEPTED + data
        super().write(data)

    def _answer_only(self, answer: bytes) -> None:
        """`answer` is all that the gateway gets."""
        self._is_refused = True
        super().write(answer)
