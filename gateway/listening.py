"""Listeners over TCP, and errors of listeners for people: which setting gives the address that cannot be used, why, and
what to do."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from gateway.host.tls import ServerTls, handshake_of
from schemas.errors import SettingsError

_BACKLOG: Final = 1024
_ADVICE: Final = MappingProxyType(
    {
        errno.EADDRINUSE: "stop the program that uses it, or choose another port",
        errno.EACCES: "choose a port above 1023, or let this user open lower ones",
    }
)


@contextmanager
def listening(setting: str, host: str, port: int) -> Iterator[None]:
    """Around what opens a listener on `port`, which is that of `setting`. Raises SettingsError for an address that
    cannot be used."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or str(error)  # below 0: of the name's resolution
        advice = _ADVICE.get(number, f"write an address of this machine instead of {host}")
        raise SettingsError(f"cannot listen on {host}, {setting} = {port}: {why}; {advice}") from error


async def open_tcp(
    setting: str,
    host: str,
    port: int,
    protocol: Callable[[], asyncio.BaseProtocol],
    tls: ServerTls | None = None,
    tls_close_s: float | None = None,
) -> asyncio.Server:
    """Listens on `port`, which is that of `setting`; with TLS if `tls` is given, and then the close of each connection
    may take `tls_close_s`, None for asyncio's own limit. Raises SettingsError for an address that cannot be used."""
    context, handshake_s = handshake_of(tls)
    with listening(setting, host, port):
        return await asyncio.get_running_loop().create_server(
            protocol,
            host,
            port,
            backlog=_BACKLOG,
            ssl=context,
            ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=None if context is None else tls_close_s,
        )
