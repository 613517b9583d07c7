"""UDP as a source, unicast or multicast (S2).

Nobody waits for a slow reader: what is not read in time the kernel drops, and counts (SO_RXQ_OVFL, socket(7)). What is
read while the buffer is full is dropped here, and counted. Numbers make either visible as a gap.

Datagrams of formats other than MoldUDP64 have whole lines or records: what a datagram ends within is malformed.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from typing import Final, Protocol

from edge.feeds.adapter.address import Address
from edge.feeds.adapter.parsing import ByteParser, MakeParser
from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.adapter.sources.intake import Intake, Piece
from edge.feeds.errors import SourceUnusable
from edge.feeds.source import Found

_log = logging.getLogger("waystation.feed")
SO_RXQ_OVFL: Final = 40
_COUNT: Final = struct.Struct("=I")
DATAGRAM_BYTES: Final = 65_535
DATAGRAMS_AT_ONCE: Final = 64


class DatagramReader(Protocol):
    """Makes something of datagrams."""

    def datagrams(self, data: list[bytes]) -> None: ...


class UdpSource:
    """Binds to `address` and hands datagrams to `reader`. `on_bound`: told the port."""

    def __init__(
        self,
        address: Address,
        receive_bytes: int,
        reader: DatagramReader,
        intake: Intake,
        on_bound: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._address, self._receive_bytes, self._reader = address, receive_bytes, reader
        self._intake, self._on_bound = intake, on_bound
        self._dropped = 0

    async def run(self) -> None:
        """Never returns. Raises SourceUnusable if the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self._address.host, self._address.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
            )
            sock = bound_socket(self._address, found[0][0], found[0][4], self._receive_bytes)
        except OSError as error:
            raise SourceUnusable(f"source.from cannot be bound to: {error.strerror or error}") from error
        with contextlib.closing(sock):
            self._on_bound(sock.getsockname()[1])
            self._intake.is_now("up")
            ended: asyncio.Future[None] = loop.create_future()
            loop.add_reader(sock.fileno(), self._readable, sock, ended)
            try:
                await ended
            finally:
                loop.remove_reader(sock.fileno())

    def _readable(self, sock: socket.socket, ended: "asyncio.Future[None]") -> None:
        try:
            data: list[bytes] = []
            while len(data) < DATAGRAMS_AT_ONCE:
                try:
                    datagram, ancillary, _, _ = sock.recvmsg(DATAGRAM_BYTES, 64)
                except BlockingIOError:
                    break
                except OSError:  # an ICMP error of what was sent from this port
                    break
                data.append(datagram)
                for level, kind, value in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, SO_RXQ_OVFL) and len(value) >= _COUNT.size:
                        self._count(_COUNT.unpack_from(value)[0])
            if data:
                self._reader.datagrams(data)
        except Exception as error:
            if not ended.done():
                ended.set_exception(error)

    def _count(self, dropped: int) -> None:
        """The kernel's count is of 32 bits, since the socket was made."""
        if dropped != self._dropped:
            self._intake.lost_datagrams((dropped - self._dropped) % 2**32)
            self._dropped = dropped


class ParsedDatagrams:
    """Reads datagrams with a parser of bytes: each begins anew."""

    def __init__(self, make: MakeParser, intake: Intake, *, has_lines: bool) -> None:
        self._intake, self._has_lines = intake, has_lines
        self._parser: ByteParser = make(intake.highest())

    def datagrams(self, data: list[bytes]) -> None:
        found: list[Found] = []
        for one in data:
            if self._has_lines and not one.endswith(b"\n"):
                one += b"\n"
            found += self._parser.feed(one)
            found += self._parser.cut()
        self._intake.offer(Piece(found, now_us()))


def bound_socket(address: Address, family: int, where: tuple[object, ...], receive_bytes: int) -> socket.socket:
    """A socket that is bound to `where`, and a member of the address's group. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        got = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel doubles it: socket(7)
        if got < receive_bytes:
            _log.warning("the kernel gives %d bytes for receiving, not %d: raise net.core.rmem_max", got, receive_bytes)
        with contextlib.suppress(OSError):  # a kernel without it does not say what it drops
            sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        if address.group:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        if address.group:
            member = socket.inet_aton(address.group) + socket.inet_aton(address.interface or "0.0.0.0")
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    except BaseException:
        sock.close()
        raise
    return sock
