"""The header of the PROXY protocol, versions 1 and 2, which names a proxy's client (haproxy.org, proxy-protocol.txt).

Pure. The reader asks `missing` how many bytes it may read, so that it never reads beyond the header.
"""

from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from gateway.errors import ProxyHeaderError

HEADER_BYTES_MAX: Final = 4096
"""A longer version 2 header is refused; without extensions the longest has 232 bytes."""

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
FIXED_BYTES: Final = 16  # of version 2: signature, version and command, family and protocol, length of the rest
_LOCAL, PROXY_COMMAND = 0x20, 0x21
_UNSPECIFIED: Final = 0x00
_ADDRESS_BYTES: Final = {0x11: 12, 0x21: 36, 0x31: 216}  # streams over IPv4, IPv6 and UNIX sockets
_ADDRESSES: Final = {0x11: (IPv4Address, 4), 0x21: (IPv6Address, 16)}

_WORD: Final = b"PROXY "
_LINE_BYTES_MIN: Final = 15  # of version 1: "PROXY UNKNOWN" and the end of the line
_LINE_BYTES_MAX: Final = 107
_LINE_ADDRESSES: Final = {"TCP4": IPv4Address, "TCP6": IPv6Address}


def missing(header: bytes) -> int:
    """How many bytes at least are missing from a header that begins with `header`; 0 once it is complete.

    Raises ProxyHeaderError as soon as it cannot be one; `is_missing` says that it does not begin like one.
    """
    size = len(header)
    if not size:
        return _LINE_BYTES_MIN
    if header.startswith(SIGNATURE[:size]):
        if size < FIXED_BYTES:
            return FIXED_BYTES - size
        whole = FIXED_BYTES + int.from_bytes(header[14:16], "big")
        if whole > HEADER_BYTES_MAX:
            raise ProxyHeaderError(f"the PROXY header has {whole} bytes, more than {HEADER_BYTES_MAX}")
        return whole - size
    if header.startswith(_WORD[:size]):
        return _missing_in_line(header, size)
    raise ProxyHeaderError("the connection does not begin with a PROXY header", is_missing=True)


def client_address(header: bytes) -> tuple[str, int] | None:
    """The address and port of the proxy's client in a complete header; None if it has none: the proxy speaks for
    itself.

    Raises ProxyHeaderError.
    """
    return _parse_binary(header) if header.startswith(SIGNATURE) else _parse_line(header)


def extensions(header: bytes) -> dict[int, bytes]:
    """The extensions (TLV) of a complete header of version 2, by type. Raises ProxyHeaderError."""
    return split_extensions(header[FIXED_BYTES + _ADDRESS_BYTES.get(header[13], 0) :])


def split_extensions(rest: bytes) -> dict[int, bytes]:
    """Types and values of a row of extensions; of two of a type the last. Raises ProxyHeaderError if one is cut off."""
    found: dict[int, bytes] = {}
    while rest:
        end = 3 + int.from_bytes(rest[1:3], "big")
        if len(rest) < max(3, end):
            raise ProxyHeaderError("an extension of the PROXY header is cut off")
        found[rest[0]] = rest[3:end]
        rest = rest[end:]
    return found


def _missing_in_line(header: bytes, size: int) -> int:
    end = header.find(b"\n")
    if end >= 0:
        if end < size - 1 or size < _LINE_BYTES_MIN or header[-2:] != b"\r\n":
            raise ProxyHeaderError("the line of the PROXY header does not end with CRLF")
        return 0
    if size < _LINE_BYTES_MIN:
        return _LINE_BYTES_MIN - size
    rest = 1 if header.endswith(b"\r") else 2
    if size + rest > _LINE_BYTES_MAX:
        raise ProxyHeaderError(f"the line of the PROXY header is longer than {_LINE_BYTES_MAX} bytes")
    return rest


def _parse_binary(header: bytes) -> tuple[str, int] | None:
    command, family = header[12], header[13]
    if command not in (_LOCAL, PROXY_COMMAND):
        raise ProxyHeaderError(f"the PROXY header has the unknown version or command 0x{command:02X}")
    if command == _LOCAL or family == _UNSPECIFIED:
        return None
    if family not in _ADDRESS_BYTES:
        raise ProxyHeaderError(f"the PROXY header has the unknown family or protocol 0x{family:02X}")
    body = header[FIXED_BYTES:]
    if len(body) < _ADDRESS_BYTES[family]:
        raise ProxyHeaderError("the PROXY header is too short for its addresses")
    if family not in _ADDRESSES:
        return None
    kind, size = _ADDRESSES[family]
    return str(kind(body[:size])), int.from_bytes(body[2 * size : 2 * size + 2], "big")


def _parse_line(header: bytes) -> tuple[str, int] | None:
    """`PROXY TCP4 source destination source-port destination-port`, or `PROXY UNKNOWN` and anything."""
    words = header[:-2].decode("ascii", errors="replace").split(" ")
    if words[1] == "UNKNOWN":
        return None
    kind = _LINE_ADDRESSES.get(words[1])
    if kind is None or len(words) != 6:
        raise ProxyHeaderError("the line of the PROXY header does not have two addresses and two ports")
    try:
        source, _ = kind(words[2]), kind(words[3])
    except AddressValueError as error:
        raise ProxyHeaderError("the line of the PROXY header has an invalid address") from error
    port, _ = _port(words[4]), _port(words[5])
    return str(source), port


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535 or str(int(text)) != text:
        raise ProxyHeaderError("the line of the PROXY header has an invalid port")
    return int(text)
