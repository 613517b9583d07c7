"""The revocation list: numbered and signed by the authority; peers tell each other its number and pass on newer ones.

    version 1 | number 8 | issued at 8 | count 4 | { name | before 8 } | signature 64

Entries revoke names, not serial numbers: all certificates of the name that were issued before a time. So a gateway that
renews certificates need not tell the authority their numbers, and a device that is enrolled again has a valid one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bundles.bundle import SIGNATURE_BYTES
from bundles.certificates import Certificate
from bundles.errors import FormatError, SignatureError
from bundles.wire import NAME_BYTES_MAX, Reader, write_text, write_uint

VERSION: Final = 1
ENTRIES_MAX: Final = 100_000
ENCODED_BYTES_MAX: Final = 4 * 1024 * 1024
"""A list is passed on whole at contacts, so it has to fit the memory of a device: about 100,000 names of 30 bytes."""
_LABEL: Final = b"waystation revocations 1\0"


@dataclass(frozen=True, slots=True)
class Revocations:
    """The list. `before_s` by name: its certificates issued before that time, seconds since the epoch, are revoked.
    Number 0 is the list of a mesh that has never revoked anything."""

    number: int
    issued_s: int
    before_s: Mapping[str, int]
    encoded: bytes = b""

    def revokes(self, certificate: Certificate) -> bool:
        """Whether the certificate is revoked."""
        return certificate.not_before_s < self.before_s.get(certificate.name, 0)


NONE: Final = Revocations(0, 0, {})


def sign(number: int, issued_s: int, before_s: Mapping[str, int], authority_key: Ed25519PrivateKey) -> Revocations:
    """A new list. Raises FormatError if a field does not fit."""
    if len(before_s) > ENTRIES_MAX:
        raise FormatError(f"a revocation list of {len(before_s)} names has more than {ENTRIES_MAX}")
    head = write_uint(VERSION, 1, "version") + write_uint(number, 8, "number") + write_uint(issued_s, 8, "time")
    entries = [
        write_text(name, NAME_BYTES_MAX, "a revoked name") + write_uint(before, 8, "time")
        for name, before in sorted(before_s.items())
    ]
    body = head + write_uint(len(entries), 4, "count") + b"".join(entries)
    if len(body) + SIGNATURE_BYTES > ENCODED_BYTES_MAX:
        raise FormatError(f"a revocation list of {len(body)} bytes is larger than {ENCODED_BYTES_MAX}")
    return Revocations(number, issued_s, dict(before_s), body + authority_key.sign(_LABEL + body))


def read(encoded: bytes, authority: Ed25519PublicKey) -> Revocations:
    """The list in `encoded`, verified. Raises FormatError, SignatureError."""
    if len(encoded) > ENCODED_BYTES_MAX:
        raise FormatError(f"a revocation list of {len(encoded)} bytes is larger than {ENCODED_BYTES_MAX}")
    body, signature = encoded[:-SIGNATURE_BYTES], encoded[-SIGNATURE_BYTES:]
    try:
        authority.verify(signature, _LABEL + body)
    except InvalidSignature as error:
        raise SignatureError("the revocation list is not signed by the authority") from error
    reader = Reader(body)
    version = reader.uint(1)
    if version != VERSION:
        raise FormatError(f"revocation list version {version} is not {VERSION}")
    number, issued_s, count = reader.uint(8), reader.uint(8), reader.uint(4)
    if count > ENTRIES_MAX:
        raise FormatError(f"a revocation list of {count} names has more than {ENTRIES_MAX}")
    before_s = {reader.text(NAME_BYTES_MAX): reader.uint(8) for _ in range(count)}
    reader.finish()
    return Revocations(number, issued_s, before_s, encoded)


def peek_number(encoded: bytes) -> int:
    """The number of an encoded list, not verified. Raises FormatError."""
    reader = Reader(encoded)
    reader.take(1)
    return reader.uint(8)
