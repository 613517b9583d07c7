"""Proxies that are trusted to identify their clients, and their HTTP headers (`gateway.trusted_proxies`)."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from gateway.errors import ProxyHeaderError

_UNKNOWN_PORT: Final = 0

Address = IPv4Address | IPv6Address


class TrustedProxies:
    """Networks of trusted proxies."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ip_network(network) for network in networks]

    def trusts(self, address: str) -> bool:
        """Whether the proxy at `address` is trusted."""
        try:
            return self._contains(_parsed(address))
        except ValueError:
            return False

    def peer(self, address: str, port: int, forwarded_for: Sequence[str]) -> str:
        """The client's `address:port` for a connection from `address`, given its X-Forwarded-For headers.

        Each proxy appends the address that called it, so the last address that is not a trusted proxy's is the client;
        earlier ones cannot be trusted. Port 0 if none is given. Raises ProxyHeaderError if that address is invalid.
        """
        if not self.trusts(address):
            return f"{address}:{port}"
        peer = (address, port)
        for entry in reversed([part.strip() for header in forwarded_for for part in header.split(",")]):
            peer = _split(entry)
            if not self.trusts(peer[0]):
                break
        return f"{peer[0]}:{peer[1]}"

    def _contains(self, address: Address) -> bool:
        return any(address in network for network in self._networks if network.version == address.version)


def _parsed(address: str) -> Address:
    """Parses an address; an IPv4 address mapped to IPv6 becomes IPv4."""
    parsed = ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _split(entry: str) -> tuple[str, int]:
    """Splits `address`, `address:port`, `[address]` or `[address]:port`."""
    host, port = entry, ""
    if entry.startswith("["):
        host, bracket, port = entry[1:].partition("]")
        host, port = host if bracket else entry, port.removeprefix(":")
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
    try:
        return str(_parsed(host)), int(port) if port.isascii() and port.isdigit() else _UNKNOWN_PORT
    except ValueError as error:
        raise ProxyHeaderError("the client's entry in X-Forwarded-For is not an address") from error
