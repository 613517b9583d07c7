"""How far a connection has got with what was written to it: over TCP as the system counts it (tcp(7)).

The transport cannot tell: one for TLS does not count what it has encrypted and not sent.
"""

import asyncio
import socket
import struct
import sys
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Final, NamedTuple

_INFO_BYTES: Final = 256
_BYTES_ACKED: Final = struct.Struct("=120xQ")  # tcpi_bytes_acked in Linux's struct tcp_info, since 4.1


class Progress(NamedTuple):
    """`waiting`: bytes that the peer has yet to take, as far as is known; `taken`: those that it has taken since the
    beginning."""

    waiting: int
    taken: int

    def has_gone_on_since(self, before: "Progress") -> bool:
        """Whether the peer has taken some of what waited for it then: it lives."""
        return before.waiting > 0 and self.taken > before.taken


def progress(transport: asyncio.Transport, written: int) -> Progress:
    """`written`: how many bytes the application has written, for systems that do not count what is taken."""
    waiting = transport.get_write_buffer_size() + _unacknowledged(transport)
    taken = _acknowledged(transport)
    return Progress(waiting, written - waiting if taken is None else taken)


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Bytes in the system's send queue that the peer's system has not acknowledged; 0 if this system cannot tell (Linux
    can: SIOCOUTQ)."""
    try:
        answer: bytes = ioctl(transport.get_extra_info("socket").fileno(), TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # ValueError: it is closed
        return 0
    return int.from_bytes(answer, sys.byteorder)


def _acknowledged(transport: asyncio.Transport) -> int | None:
    """Bytes that the peer's system has acknowledged; None if this system cannot tell."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except (OSError, ValueError):
        return None
    return int(_BYTES_ACKED.unpack_from(info)[0]) if len(info) >= _BYTES_ACKED.size else None
