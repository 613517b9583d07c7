"""Finds the client identifier at the beginning of a connection, in bytes that have been looked at and not taken (R1).
Pure.

Only what precedes the identifier matters: fixed header, protocol name and level, flags, keep alive, properties (MQTT
5.0, 3.1; MQTT 3.1.1, 3.1). Whether the rest is valid is for the gateway to say, which reads it all. So the answer for a
CONNECT that a gateway accepts is its identifier, and for what it refuses it does not matter.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from gateway.errors import ProxyHeaderError
from gateway.host.proxy_protocol import missing
from mqtt.codes import VERSION_3_1_1, VERSION_5, PacketType
from mqtt.errors import RemoteProtocolError
from mqtt.wire import decode_string

MOST_BYTES: Final = 64 * 1024
"""Whoever needs more in front of its identifier is not looked at any further."""

NOT_UNDERSTOOD: Final = "not understood"
"""It is no CONNECT, one of a version that no gateway speaks, or one that is too long: a gateway will say so."""

_CONNECT: Final = PacketType.CONNECT << 4
_NAME: Final = b"\0\4MQTT"
_LEVELS: Final = (VERSION_3_1_1, VERSION_5)
_FIXED_PART: Final = len(_NAME) + 4  # name, level, flags, keep alive
_SHORTEST: Final = 2 + _FIXED_PART + 2
"""Of a CONNECT: fixed header, fixed part, and the length of an identifier that is empty."""


class NeedsBytes(NamedTuple):
    """The connection's first `size` bytes are needed to know more."""

    size: int


class FoundClient(NamedTuple):
    """The identifier; empty if the client has none and will get one."""

    client: str


Looked: TypeAlias = NeedsBytes | FoundClient | Literal["not understood"]


def look(data: bytes, is_proxied: bool = False) -> Looked:
    """What the first bytes of a connection say; never raises. `is_proxied`: a header of the PROXY protocol precedes.

    NeedsBytes asks for more than `data` has, and for no more than a CONNECT has that begins like this.
    """
    try:
        start = _proxy_header(data) if is_proxied else 0
        return FoundClient(decode_string(_identifier(data, start)))
    except _Incomplete as error:
        return NeedsBytes(error.size)
    except (_NotUnderstood, ProxyHeaderError, RemoteProtocolError):
        return NOT_UNDERSTOOD


class _Incomplete(Exception):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


class _NotUnderstood(Exception):
    pass


def _proxy_header(data: bytes) -> int:
    """How many bytes the header has."""
    size = 0
    while more := missing(data[:size]):
        size += more
        if size > len(data):
            raise _Incomplete(size)
    return size


def _identifier(data: bytes, start: int) -> bytes:
    if data[start : start + 1] not in (b"", bytes([_CONNECT])):
        raise _NotUnderstood
    body, end = _fixed_header(data, start)
    if not _NAME.startswith(data[body : body + len(_NAME)]):
        raise _NotUnderstood
    _need(data, body + _FIXED_PART, end)
    level = data[body + len(_NAME)]
    if level not in _LEVELS:
        raise _NotUnderstood
    at = body + _FIXED_PART
    if level == VERSION_5:
        length, at = _varint(data, at, end)
        at += length
    _need(data, at + 2, end)
    size = int.from_bytes(data[at : at + 2], "big")
    _need(data, at + 2 + size, end)
    return data[at + 2 : at + 2 + size]


def _fixed_header(data: bytes, start: int) -> tuple[int, int]:
    """Where the packet's body begins and ends (MQTT 5.0, 2.1)."""
    if len(data) < start + 2:
        raise _Incomplete(start + _SHORTEST)
    length, body = _varint(data, start + 1, MOST_BYTES + start)
    if length < _SHORTEST - 2:
        raise _NotUnderstood
    return body, body + length


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The Variable Byte Integer at `at`, and where it ends (MQTT 5.0, 1.5.5)."""
    value = 0
    for place in range(4):
        _need(data, at + place + 1, end)
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _NotUnderstood


def _need(data: bytes, size: int, end: int) -> None:
    """Raises if `data` has fewer bytes, if the packet ends before, or if that is too much."""
    if size > min(end, MOST_BYTES):
        raise _NotUnderstood
    if size > len(data):
        raise _Incomplete(size)
