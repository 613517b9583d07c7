"""Connects to a member: by each address that its name has, and says whether all of them have refused."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Literal

from schemas.members import GatewayAddress
from schemas.this_machine import is_loopback

Outcome = Literal["connected", "refused", "failed"]


async def connect(to: GatewayAddress, tls: ssl.SSLContext | None, protocol: Callable[[], asyncio.Protocol]) -> Outcome:
    """Makes a connection, which `protocol` has then. Without `tls` only addresses of this machine are tried. `refused`:
    at every address the connection was refused (ECONNREFUSED), which says that nobody listens there; anything else that
    goes wrong is `failed`."""
    loop = asyncio.get_running_loop()
    if tls is None and not is_loopback(to.address):
        return "failed"
    try:
        found = await loop.getaddrinfo(to.address, to.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return "failed"
    refused = 0
    for family, _, _, _, address in found:
        try:
            await loop.create_connection(
                protocol,
                str(address[0]),
                int(address[1]),
                family=family,
                ssl=tls,
                server_hostname=None if tls is None else "",
            )
        except ConnectionRefusedError:
            refused += 1
        except (OSError, EOFError):
            continue
        else:
            return "connected"
    return "refused" if found and refused == len(found) else "failed"
