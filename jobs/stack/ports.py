"""Ports of the local stack: configured ones are kept or refused, free ones are picked once and remembered.

A picked port stays the same over restarts of the same data directory, unless another program has taken it. It is taken
from below the ephemeral range (Linux 32768, macOS and IANA 49152): a port from that range may be in use by some
outgoing connection when its server comes back, and a client that retries it can even connect to itself.
"""

import random
import socket
from pathlib import Path

from jobs.errors import PortTaken
from schemas.readiness import read_json, write_json

FIRST, LAST = 20_000, 32_000
TRIES = 200


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


class Ports:
    """The ports of one data directory, remembered in `<data>/ports.json`."""

    def __init__(self, data: Path) -> None:
        self._file = data / "ports.json"
        self.remembered: dict[str, int] = read_json(self._file) or {}
        """Ports picked so far, by the name of the listener."""
        self._given: set[int] = set()

    def choose(self, name: str, host: str, configured: int, setting: str) -> int:
        """The port for the listener `name`: `configured`, or if that is 0 the remembered one or a free one.

        Raises PortTaken, naming `setting`, if the configured port is in use.
        """
        if configured:
            if configured in self._given or not is_free(host, configured):
                raise PortTaken(
                    f"port {configured} ({setting}) on {host} is taken by another program: stop it, choose another "
                    f"port in a --conf file or the environment, or use `--free-ports`"
                )
            port = configured
        else:
            port = self._pick(name, host)
        self._given.add(port)
        return port

    def _pick(self, name: str, host: str) -> int:
        remembered = self.remembered.get(name, 0)
        tries = [remembered] if remembered else []
        tries += random.SystemRandom().sample(range(FIRST, LAST), TRIES)
        for port in tries:
            if port not in self._given and is_free(host, port):
                self.remembered[name] = port
                write_json(self._file, self.remembered)
                return port
        raise PortTaken(f"no free port was found between {FIRST} and {LAST} on {host} for {name}")
