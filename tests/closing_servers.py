"""Closing a server of asyncio without forgetting connections.

Python 3.11 forgets a connection that it has accepted, without closing it, if its server is closed before the
connection is made. The garbage collector finds it later, and some other test is blamed.
"""

import asyncio

_MAKING = "_accept_connection2"
"""The coroutine of asyncio's event loop that makes an accepted connection."""


async def close_server(server: asyncio.Server) -> None:
    """Nobody is accepted from now on; who was accepted is made, and then the server is closed."""
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    making = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == _MAKING]
    await asyncio.gather(*making, return_exceptions=True)
    server.close()
