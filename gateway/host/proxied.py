"""TCP connections through a proxy: reads the proxy's header, then treats the connection as any other.

Reads no byte beyond the header, so that only the transport has to be handed over.
"""

import asyncio
from functools import partial
from typing import Final, cast

import structlog

from gateway.errors import ProxyHeaderError
from gateway.host.close_reasons import PROXY_HEADER_MALFORMED, PROXY_HEADER_MISSING, UNTRUSTED_PROXY
from gateway.host.host_server import HostServer
from gateway.host.proxies import TrustedProxies
from gateway.host.proxy_protocol import HEADER_BYTES_MAX, client_address, missing
from gateway.host.tcp import MqttTcpProtocol

_NOBODY: Final = ("", 0)

log = structlog.get_logger(__name__)


class ProxiedProtocol(asyncio.BufferedProtocol):
    """Reads the header, then hands over to an MqttTcpProtocol whose peer is the proxy's client. Closes and counts a
    connection that is not from `trusted`, or that sends no complete header within `connect_timeout_s`."""

    def __init__(self, server: HostServer, trusted: TrustedProxies) -> None:
        self._server = server
        self._trusted = trusted
        self._transport: asyncio.Transport
        self._buffer = bytearray(HEADER_BYTES_MAX)
        self._read = 0
        self._missing = missing(b"")
        self._proxy = _NOBODY
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._proxy = (transport.get_extra_info("peername") or _NOBODY)[:2]
        if not self._trusted.trusts(self._proxy[0]):
            self._refuse(UNTRUSTED_PROXY, "the peer is not in gateway.trusted_proxies")
            return
        too_late = partial(self._refuse, PROXY_HEADER_MISSING, "no complete PROXY header arrived in time")
        self._timer = asyncio.get_running_loop().call_later(self._server.limits.connect_timeout_s, too_late)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._read : self._read + self._missing]

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            return
        self._read += nbytes
        header = bytes(self._buffer[: self._read])
        try:
            self._missing = missing(header)
            if self._missing:
                return
            protocol = self.take(header)
        except ProxyHeaderError as error:
            self._missing = 1  # a buffer must not be empty; nothing more is read
            self._refuse(PROXY_HEADER_MISSING if error.is_missing else PROXY_HEADER_MALFORMED, str(error))
            return
        self._end()
        self._hand_over(protocol)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._refuse(PROXY_HEADER_MISSING, "the connection ended before a complete PROXY header arrived")

    def take(self, header: bytes) -> asyncio.BaseProtocol:
        """What reads on after a complete header: the transport of the client that it names. Raises ProxyHeaderError."""
        return _Transport(self._server, client_address(header))

    def _hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        protocol.connection_made(self._transport)
        self._transport.set_protocol(protocol)
        if not isinstance(protocol, asyncio.BufferedProtocol):  # uvloop's reading keeps to the kind that it began with
            self._transport.pause_reading()
            self._transport.resume_reading()

    def _refuse(self, reason: str, detail: str) -> None:
        if self._is_over:
            return
        self._end()
        self._server.counts["connections_opened"] += 1
        self._server.counts[f"closed_{reason}"] += 1
        log.info("connection refused", proxy=f"{self._proxy[0]}:{self._proxy[1]}", reason=detail)
        self._transport.abort()

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()


class _Transport(MqttTcpProtocol):
    """The peer is the proxy's client, if the proxy has named one."""

    def __init__(self, server: HostServer, address: tuple[str, int] | None) -> None:
        super().__init__(server)
        self._address = address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._address is not None:
            self.peer = f"{self._address[0]}:{self._address[1]}"
