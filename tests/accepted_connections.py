"""Connections that servers of asyncio have accepted are closed in tests, where asyncio forgets them.

The garbage collector finds such a connection later, and warns in the middle of some other test. Applications end with
their servers, so that only tests, many in one process, meet it:

* Python 3.11 forgets a connection that it accepted for a server that has been closed since; 3.12 closes it.
* A task that is cancelled before it has begun leaves its connection open: `asyncio.run` cancels the handler of a
  connection that was accepted in the last moment.
"""

import socket
import sys
from asyncio import Server
from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any


def close_what_is_forgotten() -> None:
    """For all event loops of this process."""
    if sys.version_info < (3, 12):
        _close_those_of_closed_servers()
    close = BaseSelectorEventLoop.close

    def close_with_accepted(loop: Any) -> None:
        for transport in list(loop._transports.values()):
            if transport._server is not None and transport._sock is not None:
                transport._sock.close()
                transport._sock = None
        close(loop)

    BaseSelectorEventLoop.close = close_with_accepted  # type: ignore[method-assign]


def _close_those_of_closed_servers() -> None:
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
