"""What goes over a link, as bytes and back (Q6). Pure.

Each side begins with PREFACE and a hello. The side that has dialled sends pings, the other answers each with a pong. A
frame is its kind (1 byte), the length of its payload (2 bytes, big-endian) and the payload. A frame of an unknown kind
is passed over, so that a later version may say more.

| kind | name  | payload                                        |
|------|-------|------------------------------------------------|
| 1    | hello | JSON, :class:`Hello`                           |
| 2    | ping  | none                                           |
| 3    | pong  | none                                           |
"""

from struct import Struct
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gateway.errors import LinkProtocolError
from schemas.leases import Claimant
from schemas.members import LONGEST_NAME
from schemas.undecodable import UNDECODABLE

PREFACE: Final = b"WSL\x01"
LARGEST: Final = 4_096
"""The largest payload, in bytes, that is accepted."""

PING: Final = b"\x02\x00\x00"
PONG: Final = b"\x03\x00\x00"

_HELLO: Final = 1
_HEAD = Struct(">BH")


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: the gateway's name, and its process as in :class:`schemas.members.Heartbeat`."""

    v: int = 1
    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    boot: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


Frame = Claimant | Literal["ping", "pong"]
"""A hello is the member that has said it."""

_decoder = msgspec.json.Decoder(Hello)


def opening(me: Claimant) -> bytes:
    """What each side sends first."""
    payload = msgspec.json.encode(Hello(name=me.name, boot=me.boot))
    return PREFACE + _HEAD.pack(_HELLO, len(payload)) + payload


class FrameReader:
    """One direction of a link."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._has_begun = False
        self._has_hello = False

    def receive(self, data: bytes) -> list[Frame]:
        """The frames that are complete now. Raises LinkProtocolError; nothing more can be read then."""
        self._buffer += data
        if not self._has_begun:
            start = bytes(self._buffer[: len(PREFACE)])
            if start != PREFACE[: len(start)]:
                raise LinkProtocolError(f"it begins with {start!r}, which is no link between gateways")
            if len(start) < len(PREFACE):
                return []
            self._has_begun = True
            del self._buffer[: len(PREFACE)]
        found: list[Frame] = []
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            if length > LARGEST:
                raise LinkProtocolError(f"a frame of {length} bytes is larger than {LARGEST}")
            if len(self._buffer) < _HEAD.size + length:
                break
            payload = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            frame = self._frame(kind, payload)
            if frame is not None:
                found.append(frame)
        return found

    def _frame(self, kind: int, payload: bytes) -> Frame | None:
        if self._has_hello == (kind == _HELLO):
            raise LinkProtocolError("a second hello" if self._has_hello else "the first frame is no hello")
        if kind == _HELLO:
            self._has_hello = True
            return _hello(payload)
        if kind == PING[0]:
            return "ping"
        return "pong" if kind == PONG[0] else None


def _hello(payload: bytes) -> Claimant:
    try:
        hello = _decoder.decode(payload)
    except UNDECODABLE as error:
        raise LinkProtocolError(f"not a hello: {error}") from error
    if hello.v != 1:
        raise LinkProtocolError(f"a hello of version {hello.v}, not 1")
    return Claimant(hello.name, hello.boot)
