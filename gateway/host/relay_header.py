"""What a gateway says of a client whose bytes it relays to the client's home: a PROXY header of version 2 (G14, R11).

It has the client's address, so that presence and logs know the true peer, and as extensions (TLV) what the relaying
gateway has proven: whether the client uses TLS (PP2_TYPE_SSL), the common name of its verified certificate
(PP2_SUBTYPE_SSL_CN), and the bearer.
The home believes it because only members of the cluster can connect to the listener that reads it.
"""

from ipaddress import ip_address
from struct import Struct
from typing import Final, NamedTuple

from gateway.errors import ProxyHeaderError
from gateway.host.proxy_protocol import (
    FIXED_BYTES,
    PROXY_COMMAND,
    SIGNATURE,
    client_address,
    extensions,
    split_extensions,
)

_TCP4, _TCP6, _UNSPECIFIED = 0x11, 0x21, 0x00
_TYPE_SSL: Final = 0x20
_TYPE_BEARER: Final = 0xE0  # PP2_TYPE_MIN_CUSTOM
_SUBTYPE_CN: Final = 0x22
_CLIENT_SSL, _CERT_CONN, _CERT_SESSION = 0x01, 0x02, 0x04
_SSL: Final = Struct(">BI")  # client flags; 0: the certificate is verified
_VERIFIED, _NOT_VERIFIED = 0, 1
_TLV: Final = Struct(">BH")
_PORT: Final = Struct(">H")
_BEARERS: Final = ("mqtt", "ws", "quic")
_NAME_BYTES_MAX: Final = 1_024


class RelayedClient(NamedTuple):
    """`peer`: `address:port`, "" if not known; `bearer` and `uses_tls` as of
    :class:`gateway.host.connection.Transport`; `certificate`: the common name of the client's verified certificate,
    None without one."""

    peer: str
    bearer: str
    uses_tls: bool
    certificate: str | None


def encode(client: RelayedClient) -> bytes:
    """The header."""
    family, addresses = _addresses(client.peer)
    body = addresses + _tlv(_TYPE_BEARER, client.bearer.encode())
    if client.certificate is not None:
        name = client.certificate.encode(errors="replace")[:_NAME_BYTES_MAX]
        verified = _SSL.pack(_CLIENT_SSL | _CERT_CONN | _CERT_SESSION, _VERIFIED)
        body += _tlv(_TYPE_SSL, verified + _tlv(_SUBTYPE_CN, name))
    elif client.uses_tls:
        body += _tlv(_TYPE_SSL, _SSL.pack(_CLIENT_SSL, _NOT_VERIFIED))
    return SIGNATURE + bytes((PROXY_COMMAND, family)) + _PORT.pack(len(body)) + body


def decode(header: bytes) -> RelayedClient:
    """The client that a complete header names. Raises ProxyHeaderError."""
    if len(header) < FIXED_BYTES or not header.startswith(SIGNATURE):
        raise ProxyHeaderError("a relayed connection begins with a PROXY header of version 2")
    address, found = client_address(header), extensions(header)
    bearer = found.get(_TYPE_BEARER, b"").decode(errors="replace")
    if bearer not in _BEARERS:
        raise ProxyHeaderError(f"the PROXY header of a relayed connection has no bearer that is known: {bearer[:20]!r}")
    uses_tls, certificate = _tls(found[_TYPE_SSL]) if _TYPE_SSL in found else (False, None)
    return RelayedClient("" if address is None else f"{address[0]}:{address[1]}", bearer, uses_tls, certificate)


def _tls(value: bytes) -> tuple[bool, str | None]:
    """Whether the client uses TLS, and the common name of its verified certificate."""
    if len(value) < _SSL.size:
        raise ProxyHeaderError("the extension SSL of the PROXY header is cut off")
    flags, verify = _SSL.unpack_from(value)
    uses_tls = bool(flags & _CLIENT_SSL)
    if verify or not flags & (_CERT_CONN | _CERT_SESSION):
        return uses_tls, None
    name = split_extensions(value[_SSL.size :]).get(_SUBTYPE_CN)
    try:
        return uses_tls, None if name is None else name.decode()
    except UnicodeDecodeError as error:
        raise ProxyHeaderError("the common name in the PROXY header is not UTF-8") from error


def _addresses(peer: str) -> tuple[int, bytes]:
    host, _, port = peer.rpartition(":")
    try:
        address, number = ip_address(host.strip("[]").partition("%")[0]), int(port)
    except ValueError:  # a peer that is not known, or has no address
        return _UNSPECIFIED, b""
    nowhere = bytes(len(address.packed))
    ports = _PORT.pack(number if 0 <= number <= 65_535 else 0) + _PORT.pack(0)
    return (_TCP4 if address.version == 4 else _TCP6), address.packed + nowhere + ports


def _tlv(kind: int, value: bytes) -> bytes:
    return _TLV.pack(kind, len(value)) + value
