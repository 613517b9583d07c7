"""Ports of the local stack: configured ones are used or refused, free ones are picked once and remembered.

A picked port stays the same over restarts of the same data directory, unless another program has taken it. It is below
the ephemeral range (Linux 32768, macOS and IANA 49152): a port in that range may be in use by an outgoing connection
when its server restarts, and a client that retries it can even connect to itself.
"""

import errno
import random
import socket
from pathlib import Path

from jobs.errors import PortTaken
from schemas.readiness import read_json, write_json

FIRST, LAST = 20_000, 32_000
TRIES = 200
TAKEN = "is used by another program"


def is_free(host: str, port: int, *, udp: bool = False) -> bool:
    """Whether a server could listen on the port now."""
    return why_not(host, port, udp=udp) is None


def why_not(host: str, port: int, *, udp: bool = False) -> str | None:
    """Why no server could listen there now: `is used by another program`, …; None if one could."""
    kind = socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as probe:
        if not udp:  # over UDP two programs could then share the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return TAKEN
            if error.errno == errno.EACCES:
                return "is reserved for root: choose a port above 1023"
            return f"cannot be used: {host} is not an address of this machine ({error.strerror})"
        return None


class Ports:
    """The ports of one data directory, remembered in `<data>/ports.json`."""

    def __init__(self, data: Path) -> None:
        self._file = data / "ports.json"
        self.remembered: dict[str, int] = read_json(self._file) or {}
        """Ports picked so far, by the name of the listener."""
        self._given: dict[tuple[int, bool], str] = {}

    def choose(self, name: str, host: str, configured: int, setting: str, *, udp: bool = False) -> int:
        """The port for the listener `name`: `configured`, or if that is 0 the remembered one or a free one. Listeners
        over TCP and over UDP (`udp`) may have the same.

        Raises PortTaken, naming `setting`, if the configured port is in use.
        """
        if configured:
            other = self._given.get((configured, udp))
            why = f"is also set for {other}" if other else why_not(host, configured, udp=udp)
            if why:
                stop_it = "stop it, " if why == TAKEN else ""
                raise PortTaken(
                    f"port {configured} ({setting}) on {host} {why}: {stop_it}choose another port in a --conf file or "
                    f"an environment variable, or use `--free-ports`"
                )
            port = configured
        else:
            port = self._pick(name, host, udp)
        self._given[port, udp] = setting if configured else name
        return port

    def _pick(self, name: str, host: str, udp: bool) -> int:
        remembered = self.remembered.get(name, 0)
        tries = [remembered] if remembered else []
        tries += random.SystemRandom().sample(range(FIRST, LAST), TRIES)
        for port in tries:
            if (port, udp) not in self._given and is_free(host, port, udp=udp):
                self.remembered[name] = port
                write_json(self._file, self.remembered)
                return port
        why = why_not(host, 0, udp=udp) or "has no free port"
        raise PortTaken(f"no free port between {FIRST} and {LAST} was found for {name}: {host} {why}")
