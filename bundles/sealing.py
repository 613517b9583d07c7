"""Payloads are sealed from originator to recipient, so that a carrier stores and forwards what it cannot read (M17).

HPKE (RFC 9180) in base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305. `info` is a label and the
SHA-256 of the header, so a ciphertext opens only under the header that it was made for. Who wrote it, the bundle's
signature says.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from bundles.bundle import Header, encode_header
from bundles.errors import SealError

OVERHEAD_BYTES: Final = 32 + 16
"""By how much a ciphertext is longer than its plaintext: the encapsulated key and the tag."""

_LABEL: Final = b"waystation seal 1\0"
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def seal(header: Header, plaintext: bytes, recipient: X25519PublicKey) -> bytes:
    """The ciphertext of a bundle with that header, which only the recipient can open."""
    return _SUITE.encrypt(plaintext, recipient, _info(encode_header(header)))


def unseal(header: Header, ciphertext: bytes, keys: Iterable[X25519PrivateKey], encoded: bytes = b"") -> bytes:
    """The plaintext. `keys`: the recipient's, the newest first; old ones are kept while bundles sealed to them may be
    alive. `encoded`: the header's encoding, if it is at hand. Raises SealError if none of them opens it."""
    info = _info(encoded or encode_header(header))
    for key in keys:
        with suppress(InvalidTag, ValueError):
            return _SUITE.decrypt(ciphertext, key, info)
    raise SealError(f"no key opens the payload of bundle {header.message_id} to {header.destination}")


def _info(encoded: bytes) -> bytes:
    return _LABEL + hashlib.sha256(encoded).digest()
