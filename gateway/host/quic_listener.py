"""The UDP socket of MQTT over QUIC: which connection a datagram is for, and who may open one (G11; RFC 9000).

Theory of operation. A datagram names its connection by an id that the gateway has chosen, so a client may change its
address and stays connected (RFC 9000, 5.2 and 9). Datagrams for no known connection are dropped, except a client's
first one. The gateway answers it with a Retry packet and keeps nothing: the client has to send the token in it back
from the same address within 30 s (RFC 9000, 8.1.2). So forged addresses make the gateway send less than it receives,
and cost no memory. Handshakes at a time are limited, and connections are as open files limit them for TCP. More are
refused at once (CONNECTION_REFUSED).
"""

import asyncio
import logging
import os
import socket
from typing import Final, cast

from aioquic._buffer import Buffer
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.connection import TRANSPORT_CLOSE_FRAME_CAPACITY
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import (
    QuicErrorCode,
    QuicFrameType,
    QuicHeader,
    QuicPacketType,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.quic.retry import QuicRetryTokenHandler

from gateway.host.host_server import HostServer
from gateway.host.quic import QuicTransport
from gateway.host.quic_tls import QuicTls
from mqtt.quic_stream import NetworkAddress, QuicStream

_RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""One socket receives for all clients. The system may allow less (`net.core.rmem_max`)."""

_CONNECTION_ID_BYTES: Final = 8
_LONG_HEADER: Final = 0x80

# Clients that break the protocol are no warnings for the operator: each would have a line.
logging.getLogger("quic").setLevel(logging.ERROR)


class QuicListener(asyncio.DatagramProtocol):
    """One socket. `close` takes no more clients; `closed` must follow once the others have left."""

    def __init__(self, server: HostServer, tls: QuicTls) -> None:
        self._server = server
        self._tls = tls
        self._retry = QuicRetryTokenHandler()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.DatagramTransport
        self._connections: dict[bytes, QuicTransport] = {}
        self._ids: dict[QuicTransport, set[bytes]] = {}
        self._is_closed = False
        self.handshakes = 0
        """Connections whose handshake is not done."""

    def close(self) -> None:
        self._is_closed = True

    def closed(self) -> None:
        """Ends what is left, and closes the socket."""
        for transport in list(self._ids):
            transport.abort()
        self._transport.close()

    # -- asyncio.DatagramProtocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: NetworkAddress) -> None:
        if not data:
            return
        if not data[0] & _LONG_HEADER:
            connection = self._connections.get(data[1 : 1 + _CONNECTION_ID_BYTES])
        else:
            connection = self._of_long_header(data, address)
        if connection is not None:
            connection.datagram_received(data, address)

    def error_received(self, error: Exception) -> None:
        """What could not be sent is sent again, as if it had been lost on its way."""

    # -- inside --------------------------------------------------------------------------------------------------------

    def _of_long_header(self, data: bytes, address: NetworkAddress) -> QuicTransport | None:
        """The connection of a packet from before the end of a handshake; a new one if it may be opened."""
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=_CONNECTION_ID_BYTES)
        except ValueError:
            return None
        connection = self._connections.get(header.destination_cid)
        if connection is not None or len(data) < SMALLEST_MAX_DATAGRAM_SIZE:  # RFC 9000, 14.1
            return connection
        if header.packet_type is QuicPacketType.VERSION_NEGOTIATION or header.version is None:
            return None
        credentials = self._tls.files.current
        if header.version not in credentials.configuration.supported_versions:
            versions = credentials.configuration.supported_versions
            self._transport.sendto(
                encode_quic_version_negotiation(
                    source_cid=header.destination_cid, destination_cid=header.source_cid, supported_versions=versions
                ),
                address,
            )
            return None
        if header.packet_type is not QuicPacketType.INITIAL:
            return None
        return self._first_packet(header, address)

    def _first_packet(self, header: QuicHeader, address: NetworkAddress) -> QuicTransport | None:
        if not header.token:
            self._send_retry(header, address)
            return None
        try:
            original = self._retry.validate_token(
                address=address, destination_cid=header.destination_cid, token=header.token, now=self._loop.time()
            )
        except ValueError:
            self._refuse(header, address, QuicErrorCode.INVALID_TOKEN)
            return None
        if self._is_full():
            self._server.counts["quic_refused"] += 1
            self._refuse(header, address, QuicErrorCode.CONNECTION_REFUSED)
            return None
        return self._open(original, header.destination_cid)

    def _is_full(self) -> bool:
        server, limits = self._server, self._server.limits
        if self._is_closed or self.handshakes >= limits.quic_handshakes:
            return True
        return len(server.connections) + self.handshakes >= limits.open_files

    def _open(self, original: bytes, chosen: bytes) -> QuicTransport:
        """A new connection; `chosen` is the id in the Retry packet, `original` the one before that."""
        credentials, ids = self._tls.files.current, {chosen}

        def route(connection_id: bytes, is_in_use: bool) -> None:
            if is_in_use:
                ids.add(connection_id)
                self._connections[connection_id] = transport
            else:
                ids.discard(connection_id)
                self._connections.pop(connection_id, None)

        stream = QuicStream(
            credentials.configuration,
            asks_certificate=credentials.asks,
            route=route,
            original_destination_connection_id=original,
            retry_source_connection_id=chosen,
        )
        transport = QuicTransport(
            self._server,
            credentials,
            stream,
            self._transport.sendto,
            self._tls.handshake_timeout_s,
            self._handshake_done,
            self._gone,
        )
        self.handshakes += 1
        ids.add(stream.connection_id)
        self._ids[transport] = ids
        for connection_id in ids:
            self._connections[connection_id] = transport
        return transport

    def _handshake_done(self) -> None:
        self.handshakes -= 1

    def _gone(self, transport: QuicTransport) -> None:
        for connection_id in self._ids.pop(transport):
            self._connections.pop(connection_id, None)

    def _send_retry(self, header: QuicHeader, address: NetworkAddress) -> None:
        assert header.version is not None
        chosen = os.urandom(_CONNECTION_ID_BYTES)
        token = self._retry.create_token(
            address=address,
            original_destination_connection_id=header.destination_cid,
            retry_source_connection_id=chosen,
            now=self._loop.time(),
        )
        packet = encode_quic_retry(
            version=header.version,
            source_cid=chosen,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )
        self._transport.sendto(packet, address)

    def _refuse(self, header: QuicHeader, address: NetworkAddress, code: int) -> None:
        """Answers a first packet with CONNECTION_CLOSE in an Initial packet (RFC 9000, 10.2.3)."""
        assert header.version is not None
        keys = CryptoPair()
        keys.setup_initial(cid=header.destination_cid, is_client=False, version=header.version)
        builder = QuicPacketBuilder(
            host_cid=header.destination_cid,
            is_client=False,
            max_datagram_size=SMALLEST_MAX_DATAGRAM_SIZE,
            peer_cid=header.source_cid,
            version=header.version,
        )
        builder.start_packet(QuicPacketType.INITIAL, keys)
        frame = builder.start_frame(QuicFrameType.TRANSPORT_CLOSE, capacity=TRANSPORT_CLOSE_FRAME_CAPACITY)
        for value in (code, QuicFrameType.PADDING, 0):  # no frame caused it; no words
            frame.push_uint_var(value)
        for datagram in builder.flush()[0]:
            self._transport.sendto(datagram, address)


async def open_quic(server: HostServer, host: str, port: int, tls: QuicTls) -> tuple[list[QuicListener], int]:
    """Listens at every address of `host`; returns the listeners and the port, a free one if `port` is 0. Raises
    OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    listeners: list[QuicListener] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            udp = _bound(family, (address[0], port, *address[2:]))
            port = int(udp.getsockname()[1])
            _, listener = await loop.create_datagram_endpoint(lambda: QuicListener(server, tls), sock=udp)
            listeners.append(listener)
    except BaseException:
        for listener in listeners:
            listener.closed()
        raise
    return listeners, port


def _bound(family: int, address: NetworkAddress) -> socket.socket:
    udp = socket.socket(family, socket.SOCK_DGRAM)
    try:
        udp.setblocking(False)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        if family == socket.AF_INET6:
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as for TCP; IPv4 has a socket of its own
        udp.bind(address)
    except BaseException:
        udp.close()
        raise
    return udp
