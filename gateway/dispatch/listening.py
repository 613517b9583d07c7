"""The listening sockets of the dispatcher. They outlive it, if another one takes its place."""

import socket
from collections.abc import Sequence
from typing import Final

from gateway.listening import listening
from schemas.errors import SettingsError

_BACKLOG: Final = 1024


def open_listening(host: str, port: int) -> list[socket.socket]:
    """Listens on every address of `host`, by its name or as it is; port 0: a free one, the same on all. Raises
    SettingsError for an address that cannot be used."""
    opened: list[socket.socket] = []
    try:
        with listening("gateway.dispatcher.port", host, port):
            for family, kind, protocol, _, address in _addresses(host, port):
                one = socket.socket(family, kind, protocol)
                opened.append(one)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address[0], port or port_of(opened), *address[2:]))
                one.listen(_BACKLOG)
    except SettingsError:
        for one in opened:
            one.close()
        raise
    return opened


def port_of(sockets: Sequence[socket.socket]) -> int:
    """0 if it is not chosen yet."""
    return int(sockets[0].getsockname()[1]) if sockets else 0


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))
