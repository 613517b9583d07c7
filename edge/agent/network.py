"""Notices that addresses or routes of this machine have come or gone, so that nobody waits out a pause (M3, M5).

They are compared every POLL_S. Linux has them in files, which takes some 0.1 ms to read; elsewhere the package ifaddr
tells the addresses. What is read first counts as no change.
"""

import asyncio
import hashlib
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

POLL_S: Final = 2.0
READ_BYTES_MAX: Final = 1 << 20
"""Of each file: who has larger tables of routes is no device."""

_FILES: Final = ("fib_trie", "route", "if_inet6")
_ROUTES_6: Final = "ipv6_route"
_STABLE: Final = (0, 1, 4, 9)
"""Fields of an IPv6 route that do not change while it is used: destination, length, gateway, interface."""

_log: Final = logging.getLogger("waystation.agent")


class NetworkWatch:
    """`state` gives what is compared; `on_change` is awaited after each change. Neither may raise but OSError, which
    counts as no change."""

    def __init__(
        self,
        on_change: Callable[[], Awaitable[None]],
        state: Callable[[], bytes] | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        self._on_change, self._state, self._poll_s = on_change, state or network_state, poll_s
        self.changes = 0
        """How many were noticed."""

    async def run(self) -> None:
        """For ever."""
        before = self._read(b"")
        while True:
            await asyncio.sleep(self._poll_s)
            now = self._read(before)
            if now != before:
                before = now
                self.changes += 1
                _log.info("the network has changed: bearers, peers and discovery are tried again at once")
                await self._on_change()

    def _read(self, before: bytes) -> bytes:
        try:
            return self._state()
        except OSError as error:
            _log.debug("addresses and routes cannot be read: %s", error)
            return before


def network_state(directory: Path = Path("/proc/self/net")) -> bytes:
    """A digest of the addresses and routes of this machine. Raises OSError."""
    parts = _linux(directory) if sys.platform == "linux" else _elsewhere()
    return hashlib.sha256(b"\0".join(parts)).digest()


def _linux(directory: Path) -> Iterable[bytes]:
    for name in _FILES:
        yield _start_of(directory / name)
    for line in _start_of(directory / _ROUTES_6).splitlines():
        fields = line.split()
        yield b" ".join(fields[at] for at in _STABLE if at < len(fields))


def _start_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(READ_BYTES_MAX)
    except FileNotFoundError:  # a kernel without IPv6, for instance
        return b""


def _elsewhere() -> Iterable[bytes]:
    import ifaddr  # takes memory: only where it is used

    found = (
        f"{adapter.name} {one.ip}/{one.network_prefix}" for adapter in ifaddr.get_adapters() for one in adapter.ips
    )
    return [line.encode() for line in sorted(found)]
