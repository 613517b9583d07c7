"""Addresses, names and pages of this machine, as settings, connections and HTTP headers have them."""

import ipaddress
import re
from typing import Final

OWN_ORIGINS: Final = re.compile(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")
"""Origins of pages that this machine serves (the header `Origin`)."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`, which a setting has. A name other than `localhost` could be any
    machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_this_machine(address: str) -> bool:
    """Whether `localhost`, or an IP address as a connection or a header has it, means this machine. It may be in
    brackets, have a zone, or be an IPv4 address mapped to IPv6."""
    if address == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return ip.is_loopback or (ip.version == 6 and ip.ipv4_mapped is not None and ip.ipv4_mapped.is_loopback)


def names_this_machine(host: str) -> bool:
    """Whether the header `Host` names this machine, with or without a port. A page of a foreign name that resolves to a
    loopback address (DNS rebinding) shows that name."""
    return is_this_machine(host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0])
