"""The frames of the contact protocol: `type 1 | length 4 | body`. The order of frames is in :mod:`edge.mesh.contact`.

Decoding raises PeerError for whatever is wrong with a frame, before its body is kept if it is too long.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from bundles.bundle import HEADER_BYTES_MAX, Header, decode_header, encode_header
from bundles.certificates import CERTIFICATE_BYTES_MAX
from bundles.errors import FormatError
from bundles.receipt import RECEIPT_BYTES_MAX
from bundles.wire import ID_BYTES, NAME_BYTES_MAX, Reader, write_binary, write_id, write_text, write_uint
from edge.mesh.errors import PeerError

PROTOCOL: Final = b"WSM2"
"""Begins hello: what this is, and the version."""
HEAD_BYTES: Final = 5
FRAME_BYTES_MIN: Final = 4_096
"""The least that a frame limit may be: the longest hello, offer or receipt fits, and each certificate that is issued
(at most 1,300 bytes, for the longest name)."""
UNLIMITED: Final = 0xFFFF
"""Copies of an offer: as many as there are peers."""
_SCALE: Final = 0xFFFF
DATA_HEAD_BYTES: Final = ID_BYTES + 4


class Reason(IntEnum):
    """Why a peer does not take a bundle (M6)."""

    HAS_IT = 1
    DELIVERED = 2  # the receipt follows, or is on its way
    FULL = 3
    TOO_LARGE = 4
    TOO_OLD = 5
    PROXY_COUNT = 6  # no copy left to give, and the peer cannot deliver it
    HOP_LIMIT = 7
    BUSY = 8  # it is arriving from another peer
    UNKNOWN_ORIGINATOR = 9  # no key to check the signature with
    BAD_BUNDLE = 10  # what came is not what was offered, or its signature does not fit
    NO_PROXY = 11  # the peer carries nothing for others


class Hello(NamedTuple):
    """Who a peer is and what it takes. `incarnation` names its store; `predictability`: :mod:`edge.mesh.encounters`;
    `revocations`: the number of its revocation list."""

    name: str
    incarnation: int
    has_uplink: bool
    predictability: float
    frame_bytes: int
    bundle_bytes: int
    revocations: int


class Receipts(NamedTuple):
    """Encoded receipts that the peer may not have, not decoded yet: most are known already. `more`: another such frame
    follows at once."""

    receipts: tuple[bytes, ...]
    more: bool


class Summary(NamedTuple):
    """Ids of the messages that the sender holds; `more` as above."""

    ids: tuple[str, ...]
    more: bool


class Offer(NamedTuple):
    """A bundle that the sender would hand over. `size` is encoded; `copies`: how many it would give along."""

    header: Header
    size: int
    copies: int
    hops: int
    age_s: int


class Accept(NamedTuple):
    """Send it."""

    message_id: str


class Decline(NamedTuple):
    """Do not send it, or: it came, and is not stored. The copies stay with the giver."""

    message_id: str
    reason: Reason


class Data(NamedTuple):
    """A part of an encoded bundle, from byte `offset`."""

    message_id: str
    offset: int
    part: bytes


class Stored(NamedTuple):
    """The bundle is durable at the receiver: the copies are its now."""

    message_id: str


class Bye(NamedTuple):
    """The sender ends the contact."""

    detail: str


class Certificates(NamedTuple):
    """Certificates (DER), not read yet: most are known already."""

    certificates: tuple[bytes, ...]


class Revocations(NamedTuple):
    """A part of an encoded revocation list, which may be longer than a frame. `more`: the next part follows."""

    part: bytes
    more: bool


class Ping(NamedTuple):
    """Answer at once. There is no second one before the answer to the first."""


class Pong(NamedTuple):
    """The answer to a ping."""


Frame: TypeAlias = (
    Hello
    | Receipts
    | Summary
    | Offer
    | Accept
    | Decline
    | Data
    | Stored
    | Bye
    | Certificates
    | Revocations
    | Ping
    | Pong
)


class FrameBuffer:
    """Cuts a stream of bytes into frames of at most `most` bytes, head included."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """More bytes of the stream."""
        self._rest += data

    def next(self) -> Frame | None:
        """The next complete frame. Raises PeerError."""
        if len(self._rest) < HEAD_BYTES:
            return None
        size = HEAD_BYTES + int.from_bytes(self._rest[1:HEAD_BYTES], "big")
        if size > self._most:
            raise PeerError(f"a frame of {size} bytes is longer than {self._most}")
        if len(self._rest) < size:
            return None
        body = bytes(self._rest[HEAD_BYTES:size])
        number = self._rest[0]
        del self._rest[:size]
        return decode(number, body)


def encode(frame: Frame) -> bytes:
    """The frame as bytes, head included. Raises FormatError if a field does not fit."""
    kind = type(frame)
    body = _ENCODERS[kind](frame)
    return write_uint(_NUMBERS[kind], 1, "frame type") + write_binary(body, 4, 0xFFFFFFFF, "a frame")


def decode(number: int, body: bytes) -> Frame:
    """The frame of a type number and a body. Raises PeerError."""
    decoder = _DECODERS.get(number)
    if decoder is None:
        raise PeerError(f"frame type {number} is unknown")
    reader = Reader(body)
    try:
        frame = decoder(reader)
        reader.finish()
    except FormatError as error:
        raise PeerError(f"malformed frame of type {number}: {error}") from error
    return frame


def _encode_hello(hello: Hello) -> bytes:
    return b"".join(
        (
            PROTOCOL,
            write_text(hello.name, NAME_BYTES_MAX, "the agent's name"),
            write_uint(hello.incarnation, 8, "incarnation"),
            write_uint(hello.has_uplink, 1, "uplink"),
            write_uint(round(hello.predictability * _SCALE), 2, "predictability"),
            write_uint(hello.frame_bytes, 4, "frame limit"),
            write_uint(hello.bundle_bytes, 4, "bundle limit"),
            write_uint(hello.revocations, 8, "number of the revocation list"),
        )
    )


def _decode_hello(reader: Reader) -> Hello:
    if reader.take(len(PROTOCOL)) != PROTOCOL:
        raise FormatError("the peer does not speak this version of the contact protocol")
    name, incarnation, uplink, scaled = reader.text(NAME_BYTES_MAX), reader.uint(8), reader.uint(1), reader.uint(2)
    frame_bytes, bundle_bytes, revocations = reader.uint(4), reader.uint(4), reader.uint(8)
    if frame_bytes < FRAME_BYTES_MIN:
        raise FormatError(f"the peer's frame limit {frame_bytes} is below {FRAME_BYTES_MIN}")
    return Hello(name, incarnation, _flag(uplink), scaled / _SCALE, frame_bytes, bundle_bytes, revocations)


def _encode_receipts(frame: Receipts) -> bytes:
    each = (write_binary(receipt, 2, RECEIPT_BYTES_MAX, "a receipt") for receipt in frame.receipts)
    return write_uint(frame.more, 1, "more") + b"".join(each)


def _decode_receipts(reader: Reader) -> Receipts:
    more = _flag(reader.uint(1))
    receipts = []
    while reader.left:
        receipts.append(reader.binary(2, RECEIPT_BYTES_MAX))
    return Receipts(tuple(receipts), more)


def _encode_summary(frame: Summary) -> bytes:
    return write_uint(frame.more, 1, "more") + b"".join(map(write_id, frame.ids))


def _decode_summary(reader: Reader) -> Summary:
    more = _flag(reader.uint(1))
    ids = []
    while reader.left:
        ids.append(reader.message_id())
    return Summary(tuple(ids), more)


def _encode_offer(offer: Offer) -> bytes:
    header = write_binary(encode_header(offer.header), 2, HEADER_BYTES_MAX, "the header")
    numbers = write_uint(offer.size, 4, "size") + write_uint(offer.copies, 2, "copies")
    return header + numbers + write_uint(offer.hops, 1, "hop count") + write_uint(offer.age_s, 4, "age")


def _decode_offer(reader: Reader) -> Offer:
    header = decode_header(reader.binary(2, HEADER_BYTES_MAX))
    return Offer(header, reader.uint(4), reader.uint(2), reader.uint(1), reader.uint(4))


def _encode_id(frame: Accept | Stored) -> bytes:
    return write_id(frame.message_id)


def _encode_decline(frame: Decline) -> bytes:
    return write_id(frame.message_id) + write_uint(frame.reason, 1, "reason")


def _decode_decline(reader: Reader) -> Decline:
    message_id, number = reader.message_id(), reader.uint(1)
    if number not in set(Reason):
        raise FormatError(f"reason {number} of a decline is unknown")
    return Decline(message_id, Reason(number))


def _encode_data(frame: Data) -> bytes:
    return write_id(frame.message_id) + write_uint(frame.offset, 4, "offset") + frame.part


def _decode_data(reader: Reader) -> Data:
    message_id, offset = reader.message_id(), reader.uint(4)
    if not reader.left:
        raise FormatError("a part of a bundle is empty")
    return Data(message_id, offset, reader.take(reader.left))


def _encode_certificates(frame: Certificates) -> bytes:
    return b"".join(write_binary(one, 2, CERTIFICATE_BYTES_MAX, "a certificate") for one in frame.certificates)


def _decode_certificates(reader: Reader) -> Certificates:
    certificates = []
    while reader.left:
        certificates.append(reader.binary(2, CERTIFICATE_BYTES_MAX))
    return Certificates(tuple(certificates))


def _encode_nothing(frame: Ping | Pong) -> bytes:
    return b""


def _encode_revocations(frame: Revocations) -> bytes:
    return write_uint(frame.more, 1, "more") + frame.part


def _decode_revocations(reader: Reader) -> Revocations:
    more = _flag(reader.uint(1))
    return Revocations(reader.take(reader.left), more)


def _flag(number: int) -> bool:
    if number > 1:
        raise FormatError(f"a flag is {number}, neither 0 nor 1")
    return bool(number)


_NUMBERS: Final[dict[type, int]] = {
    kind: number
    for number, kind in enumerate(
        (Hello, Receipts, Summary, Offer, Accept, Decline, Data, Stored, Bye, Certificates, Revocations, Ping, Pong),
        start=1,
    )
}
_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    Hello: _encode_hello,
    Receipts: _encode_receipts,
    Summary: _encode_summary,
    Offer: _encode_offer,
    Accept: _encode_id,
    Decline: _encode_decline,
    Data: _encode_data,
    Stored: _encode_id,
    Bye: lambda bye: write_text(bye.detail, NAME_BYTES_MAX, "the detail"),
    Certificates: _encode_certificates,
    Revocations: _encode_revocations,
    Ping: _encode_nothing,
    Pong: _encode_nothing,
}
_DECODERS: Final[dict[int, Callable[[Reader], Frame]]] = {
    _NUMBERS[Hello]: _decode_hello,
    _NUMBERS[Receipts]: _decode_receipts,
    _NUMBERS[Summary]: _decode_summary,
    _NUMBERS[Offer]: _decode_offer,
    _NUMBERS[Accept]: lambda reader: Accept(reader.message_id()),
    _NUMBERS[Decline]: _decode_decline,
    _NUMBERS[Data]: _decode_data,
    _NUMBERS[Stored]: lambda reader: Stored(reader.message_id()),
    _NUMBERS[Bye]: lambda reader: Bye(reader.text(NAME_BYTES_MAX)),
    _NUMBERS[Certificates]: _decode_certificates,
    _NUMBERS[Revocations]: _decode_revocations,
    _NUMBERS[Ping]: lambda reader: Ping(),
    _NUMBERS[Pong]: lambda reader: Pong(),
}
