"""What the mesh carries: a header and a ciphertext, signed by the originator, with hop count and age outside.

    version 1 | hops 1 | age 4 | header length 2 | header | ciphertext length 4 | ciphertext | signature 64

Every carrier can check who wrote a bundle, and none can change more than its hop count and age. The signature is
Ed25519 (RFC 8032) over a label, the header and the ciphertext; the label keeps it from passing for any other signature.

The id of a message is derived from originator, incarnation and sequence, so it is the same on every way. `incarnation`
is a random number that names the originator's store: a reinstalled device is another one, and counts from 1 again.

No clock is trusted for the removal of duplicates. Two sequences say what the originator knows of its earlier messages
to this recipient: to the agent of an envelope, else to the platform, whatever the destinations. Below `low_water` all
have a receipt, or their lifetime is over: no gateway takes them any more. But the agent of an envelope may not have
what has a gateway's receipt only. It has all below `ended_below`, or their lifetime is over. What is below the mark
that counts is refused (:mod:`bundles.seen`).
"""

import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bundles.errors import FormatError, SignatureError
from bundles.wire import NAME_BYTES_MAX, Reader, write_binary, write_text, write_uint
from schemas.identity import INBOX_MARK, message_id_of

VERSION: Final = 2
SIGNATURE_BYTES: Final = 64
DESTINATION_BYTES_MAX: Final = 1024
HEADER_BYTES_MAX: Final = 2048
CIPHERTEXT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The format's limit. Settings lower it (:class:`edge.mesh.limits.MeshLimits`)."""
SEQUENCE_MAX: Final = 2**64 - 2
"""One less than fits: a recipient that has taken all messages up to a sequence notes the one after it."""
HOPS_MAX: Final = 255
_OUTSIDE_BYTES: Final = 6
"""Version, hop count and age, before what is signed."""
_STORE: Final = struct.Struct(">QQ")
"""Of a header: incarnation, sequence."""
_REST: Final = struct.Struct(">BQIQQ")
"""Of a header: kind, creation time, lifetime, low-water mark, mark of what has ended."""
_LABEL: Final = b"waystation bundle 2\0"


class Kind(IntEnum):
    """To whose key the payload is sealed, and so who can deliver it."""

    MESSAGE = 1  # the platform's: it goes to the destination, a topic or any client's inbox
    ENVELOPE = 2  # that of the agent in the destination, `@client-id`: mail, a file, a message for a local program


_KINDS: Final = {int(kind): kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Header:
    """What the originator says of a message, and signs. Times are milliseconds since the epoch, by its clock; the
    lifetime is in seconds. `sequence` counts from 1 to `SEQUENCE_MAX`; 1 <= `ended_below` <= `low_water` <= `sequence`.
    """

    originator: str
    incarnation: int
    sequence: int
    destination: str
    kind: Kind
    created_ms: int
    lifetime_s: int
    low_water: int = 1
    ended_below: int = 1

    @property
    def message_id(self) -> str:
        """The id of the message, on every way: UUID version 8 in canonical text."""
        return message_id_of(self.originator, self.incarnation, self.sequence)

    @property
    def recipient(self) -> str | None:
        """The agent that the bundle is for; None: the platform."""
        return self.destination[len(INBOX_MARK) :] if self.kind is Kind.ENVELOPE else None


@dataclass(frozen=True)
class Bundle:
    """A header, the ciphertext and the originator's signature. `hops`: over how many links it came; `age_s`: how long
    it has been on its way by the clocks of its carriers, which count durations only."""

    header: Header
    ciphertext: bytes
    signature: bytes
    hops: int = 0
    age_s: int = 0

    @cached_property
    def message_id(self) -> str:
        """As :attr:`Header.message_id`."""
        return self.header.message_id

    @cached_property
    def signed(self) -> bytes:
        """Header and ciphertext as they are encoded: what makes two copies the same bundle."""
        return _encode_signed(self.header, self.ciphertext)

    @property
    def encoded_header(self) -> bytes:
        """The header as it is encoded."""
        return self.signed[2 : 2 + int.from_bytes(self.signed[:2], "big")]

    @property
    def size(self) -> int:
        """How many bytes it takes, encoded."""
        return _OUTSIDE_BYTES + len(self.signed) + SIGNATURE_BYTES

    @property
    def remaining_s(self) -> int:
        """For how long it is still alive."""
        return max(0, self.header.lifetime_s - self.age_s)

    def carried(self, seconds: int) -> "Bundle":
        """The bundle one hop further, after `seconds` at a carrier."""
        return replace(self, hops=min(HOPS_MAX, self.hops + 1), age_s=min(0xFFFFFFFF, self.age_s + max(0, seconds)))


def sign(header: Header, ciphertext: bytes, key: Ed25519PrivateKey) -> Bundle:
    """A new bundle. Raises FormatError if a field does not fit."""
    return Bundle(header, ciphertext, key.sign(_LABEL + _encode_signed(header, ciphertext)))


def verify(bundle: Bundle, keys: Iterable[Ed25519PublicKey]) -> None:
    """Raises SignatureError unless one of the keys of `header.originator` signed the bundle. A device that was enrolled
    again has another key, while bundles of before are still on their way."""
    for key in keys:
        with suppress(InvalidSignature):
            key.verify(bundle.signature, _LABEL + bundle.signed)
            return
    name = bundle.header.originator
    raise SignatureError(f"the signature of bundle {bundle.message_id} is not that of {name}")


def encode(bundle: Bundle) -> bytes:
    """The bundle as bytes. Raises FormatError if a field does not fit."""
    head = write_uint(VERSION, 1, "version") + write_uint(bundle.hops, 1, "hop count")
    return head + write_uint(bundle.age_s, 4, "age") + bundle.signed + bundle.signature


def decode(raw: bytes, ciphertext_bytes_max: int = CIPHERTEXT_BYTES_MAX) -> Bundle:
    """The bundle in `raw`, not verified yet. Raises FormatError for bytes that are not exactly one bundle."""
    reader = Reader(raw)
    version = reader.uint(1)
    if version != VERSION:
        raise FormatError(f"bundle version {version} is not {VERSION}")
    hops, age_s = reader.uint(1), reader.uint(4)
    header = decode_header(reader.binary(2, HEADER_BYTES_MAX))
    ciphertext = reader.binary(4, min(ciphertext_bytes_max, CIPHERTEXT_BYTES_MAX))
    signature = reader.take(SIGNATURE_BYTES)
    reader.finish()
    bundle = Bundle(header, ciphertext, signature, hops, age_s)
    bundle.__dict__["signed"] = raw[_OUTSIDE_BYTES:-SIGNATURE_BYTES]  # each header has one encoding
    return bundle


def encode_header(header: Header) -> bytes:
    """The header as bytes. Raises FormatError if a field does not fit."""
    _check(header)
    return b"".join(
        (
            write_text(header.originator, NAME_BYTES_MAX, "the originator"),
            write_uint(header.incarnation, 8, "incarnation"),
            write_uint(header.sequence, 8, "sequence"),
            write_text(header.destination, DESTINATION_BYTES_MAX, "the destination"),
            write_uint(header.kind, 1, "kind"),
            write_uint(header.created_ms, 8, "creation time"),
            write_uint(header.lifetime_s, 4, "lifetime"),
            write_uint(header.low_water, 8, "low-water mark"),
            write_uint(header.ended_below, 8, "mark of what has ended"),
        )
    )


def decode_header(raw: bytes) -> Header:
    """The header in `raw`. Raises FormatError."""
    reader = Reader(raw)
    originator = reader.text(NAME_BYTES_MAX)
    incarnation, sequence = _STORE.unpack(reader.take(_STORE.size))
    destination = reader.text(DESTINATION_BYTES_MAX)
    number, created_ms, lifetime_s, *marks = _REST.unpack(reader.take(_REST.size))
    kind = _KINDS.get(number)
    if kind is None:
        raise FormatError(f"kind {number} of a bundle is unknown")
    reader.finish()
    header = Header(originator, incarnation, sequence, destination, kind, created_ms, lifetime_s, *marks)
    _check(header)
    return header


def _check(header: Header) -> None:
    if header.lifetime_s < 1:
        raise FormatError("the lifetime of a bundle is less than a second")
    if header.kind is Kind.ENVELOPE and not (header.destination[:1] == INBOX_MARK and header.recipient):
        raise FormatError(f"an envelope is sent to an agent's inbox, @client-id, not to {header.destination}")
    if header.sequence > SEQUENCE_MAX:
        raise FormatError(f"sequence {header.sequence} is above {SEQUENCE_MAX}")
    if not 1 <= header.low_water <= header.sequence:
        raise FormatError(f"low-water mark {header.low_water} is not within 1 and the sequence {header.sequence}")
    if not 1 <= header.ended_below <= header.low_water:
        raise FormatError(f"mark {header.ended_below} of what has ended is not within 1 and {header.low_water}")


def _encode_signed(header: Header, ciphertext: bytes) -> bytes:
    encoded = write_binary(encode_header(header), 2, HEADER_BYTES_MAX, "the header")
    return encoded + write_binary(ciphertext, 4, CIPHERTEXT_BYTES_MAX, "the ciphertext")
