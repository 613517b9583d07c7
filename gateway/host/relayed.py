"""Connections that other gateways relay: the listener for members, and the transport of one of them (G14).

The listener takes members of the cluster only, by mutual TLS (:mod:`gateway.host.member_tls`). Each connection begins
with a PROXY header (:mod:`gateway.host.relay_header`) that names the client, then has its MQTT stream. What is written
to it begins with the answer that :mod:`gateway.host.relay` expects.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.host import relay_header
from gateway.host.close_reasons import UNKNOWN_MEMBER
from gateway.host.host_server import HostServer
from gateway.host.member_tls import member_name
from gateway.host.proxied import ProxiedProtocol
from gateway.host.proxies import TrustedProxies
from gateway.host.relay import ACCEPTED
from gateway.host.relay_header import RelayedClient
from gateway.host.tcp import MqttTcpProtocol

_ANYBODY: Final = TrustedProxies(["0.0.0.0/0", "::/0"])
"""TLS has shown that the peer is a member, wherever it is."""


class MemberProtocol(ProxiedProtocol):
    """Reads the header; then the connection is the client's. `is_member`: whether a gateway of this name is known; None
    without TLS."""

    def __init__(self, server: HostServer, is_member: Callable[[str], bool] | None) -> None:
        super().__init__(server, _ANYBODY)
        self._is_member = is_member

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._is_member is None:
            return
        tls = transport.get_extra_info("ssl_object")
        name = None if tls is None else member_name(tls.getpeercert(binary_form=True))
        if name is None or not self._is_member(name):
            self._refuse(UNKNOWN_MEMBER, f"the certificate is not one of a gateway that is known: {name}")

    def take(self, header: bytes) -> MqttTcpProtocol:
        return RelayedTransport(self._server, relay_header.decode(header))


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
        client = self._client
        self.peer, self.uses_tls, self.certificate = client.peer, client.uses_tls, client.certificate

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
