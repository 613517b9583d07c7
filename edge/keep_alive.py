"""Probes of a TCP connection, so that the end of a peer is noticed which can say nothing any more (RFC 9293, 3.8.4)."""

import contextlib
import socket
from asyncio.trsock import TransportSocket
from typing import Final

_PROBES: Final = 3


def keep_alive(connection: socket.socket | TransportSocket, idle_s: float) -> None:
    """The connection ends with an OSError once its peer has answered nothing for about `idle_s`: half of that time is
    silence, the other half probes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wait_s, each_s = max(1, int(idle_s / 2)), max(1, int(idle_s / 2 / _PROBES))
    for name, value in (("TCP_KEEPIDLE", wait_s), ("TCP_KEEPINTVL", each_s), ("TCP_KEEPCNT", _PROBES)):
        with contextlib.suppress(AttributeError, OSError):  # not everywhere
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
