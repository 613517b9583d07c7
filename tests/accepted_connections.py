"""Python 3.11's asyncio closes a connection that it accepted for a server that has been closed since.

It forgets such a connection instead (3.12 closes it): the garbage collector finds it later, and warns in the middle of
some other test. Applications end with their servers, so that only tests, many in one process, meet it.
"""

import socket
import sys
from asyncio import Server
from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any


def close_those_of_closed_servers() -> None:
    """For all event loops of this process."""
    if sys.version_info >= (3, 12):
        return
    make = BaseSelectorEventLoop._accept_connection2  # type: ignore[attr-defined]

    async def make_or_close(
        loop: BaseSelectorEventLoop,
        factory: Any,
        accepted: socket.socket,
        extra: Any,
        sslcontext: Any = None,
        server: Server | None = None,
        *timeouts: float,
    ) -> None:
        if server is not None and not server.sockets:
            accepted.close()
        else:
            await make(loop, factory, accepted, extra, sslcontext, server, *timeouts)

    BaseSelectorEventLoop._accept_connection2 = make_or_close  # type: ignore[attr-defined]
