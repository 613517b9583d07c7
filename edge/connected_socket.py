"""A socket that is connected already: for connections that choose where they leave from, or which address they use.

The event loop owns a socket that it was given (`sock=`), and closes it, also if the handshake of TLS fails or is
cancelled. Nobody else may close it: the loop still watches its descriptor then, and refuses the next connection that
gets the number.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any


async def connected_socket(
    family: int, kind: int, protocol: int, address: Any, prepare: Callable[[socket.socket], None] = lambda _: None
) -> socket.socket:
    """A socket for one of the addresses that `getaddrinfo` has found. `prepare` may set options before it connects.
    Raises OSError, and what `prepare` raises; the socket is closed then."""
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        prepare(made)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
