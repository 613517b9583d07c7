"""Where a source is: `file:PATH`, `-`, `tcp://host:port`, `tcp-listen://host:port`, `udp://host:port?…` (S2). Pure.

A UDP address is what the adapter binds to. With `group=` it joins that multicast group, on the network interface that
has the address `interface=`, or on the one that the system chooses.
"""

import ipaddress
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

Kind = Literal["file", "pipe", "tcp", "tcp-listen", "udp"]

PIPE: Final = "-"
_FILE: Final = "file:"
_SCHEMES: Final[tuple[Kind, ...]] = ("tcp", "tcp-listen", "udp")
_FORMS: Final = "file:PATH, -, tcp://HOST:PORT, tcp-listen://HOST:PORT or udp://HOST:PORT[?group=…&interface=…]"


class Address(NamedTuple):
    """`path` of a file; `host` and `port` of others; `group` and `interface` of multicast."""

    kind: Kind
    path: str = ""
    host: str = ""
    port: int = 0
    group: str = ""
    interface: str = ""

    @property
    def can_wait(self) -> bool:
        """Whether a source waits while nothing is read from it. UDP drops instead."""
        return self.kind != "udp"


def parse_address(text: str) -> Address:
    """The address. Raises ValueError, which says what was wrong."""
    if text == PIPE:
        return Address("pipe")
    if text.startswith(_FILE):
        path = text.removeprefix(_FILE)
        if not path or "\0" in path:
            raise ValueError(f"{text!r} names no file: write file:PATH")
        return Address("file", path)
    for scheme in _SCHEMES:
        if text.startswith(f"{scheme}://"):
            return _network(scheme, text)
    raise ValueError(f"{text!r} is no source: write {_FORMS}")


def parse_request_server(text: str) -> tuple[str, int]:
    """Host and port of MoldUDP64's request server, `udp://host:port`. Raises ValueError."""
    if not text.startswith("udp://"):
        raise ValueError(f"{text!r} is no request server: write udp://HOST:PORT")
    found = _network("udp", text)
    if found.group or found.interface:
        raise ValueError(f"{text!r} has a group or an interface, which a request server has not")
    return found.host, found.port


def _network(kind: Kind, text: str) -> Address:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is no source: {error}") from None
    if not host or port is None or parts.path or parts.fragment or parts.username is not None:
        raise ValueError(f"{text!r} is no source: write {kind}://HOST:PORT")
    if kind != "udp":
        if parts.query:
            raise ValueError(f"{text!r}: only udp:// has options")
        return Address(kind, host=host, port=port)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = options.keys() - {"group", "interface"}
    if unknown:
        raise ValueError(f"{text!r}: {min(unknown)} is no option; there are group and interface")
    group, interface = options.get("group", ""), options.get("interface", "")
    if group and not _ip(group, text).is_multicast:
        raise ValueError(f"{text!r}: {group} is no multicast group")
    if interface:
        _ip(interface, text)
        if not group:
            raise ValueError(f"{text!r}: interface is for a multicast group")
    return Address("udp", host=host, port=port, group=group, interface=interface)


def _ip(text: str, where: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise ValueError(f"{where!r}: {error}") from None
