"""Enrolment tokens: with one, a device gets a certificate in the name that the token names (M5).

    version 1 | authority's key 32 | issued at 8 | valid until 8 | roles 1 | client id | signature 64

as base64url (RFC 4648, section 5) after `wse-`. The authority signs it, so gateways need not store anything. Until it
ends, a token is as good as a password: whoever has it gets a certificate in that name.

The authority's key in it is for the device: an operator hands the token over, so the device recognises a gateway that
has another authority, and gives it nothing. A token that is older than the revocation of its name is not accepted.
Never log one.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bundles.bundle import SIGNATURE_BYTES
from bundles.errors import FormatError, TokenError
from bundles.receipt import Role
from bundles.wire import NAME_BYTES_MAX, Reader, write_text, write_uint

VERSION: Final = 1
PREFIX: Final = "wse-"
TOKEN_MAX: Final = 1_024
"""Characters."""
_KEY_BYTES: Final = 32
_LABEL: Final = b"waystation enrolment 1\0"


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says. Times are seconds since the epoch."""

    name: str
    roles: frozenset[Role]
    issued_s: int
    valid_until_s: int
    authority: bytes


def sign(name: str, roles: Iterable[Role], issued_s: int, valid_until_s: int, key: Ed25519PrivateKey) -> str:
    """A new token. Raises TokenError for the role of a gateway, which no token gives; FormatError if a field does not
    fit."""
    given = set(roles)
    if Role.GATEWAY in given:
        raise TokenError("no token gives the role of a gateway")
    body = b"".join(
        (
            write_uint(VERSION, 1, "version"),
            key.public_key().public_bytes_raw(),
            write_uint(issued_s, 8, "time"),
            write_uint(valid_until_s, 8, "time"),
            write_uint(sum(1 << role for role in given), 1, "roles"),
            write_text(name, NAME_BYTES_MAX, "the client id"),
        )
    )
    return PREFIX + base64.urlsafe_b64encode(body + key.sign(_LABEL + body)).rstrip(b"=").decode()


def read(text: str) -> Token:
    """What a token says, if the authority that it names signed it. Raises TokenError. A gateway compares `authority`
    with its own, and looks at the times: :meth:`bundles.issuer.Issuer.enrol`."""
    encoded = text.strip().removeprefix(PREFIX)
    if encoded == text.strip() or len(text) > TOKEN_MAX:
        raise TokenError(f"this is no enrolment token: one begins with {PREFIX}")
    try:
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
        body, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
        reader = Reader(body)
        version = reader.uint(1)
        if version != VERSION:
            raise TokenError(f"version {version} of enrolment tokens is not supported, only {VERSION}")
        authority = reader.take(_KEY_BYTES)
        issued_s, valid_until_s, bits, name = (
            reader.uint(8),
            reader.uint(8),
            reader.uint(1),
            reader.text(NAME_BYTES_MAX),
        )
        reader.finish()
        Ed25519PublicKey.from_public_bytes(authority).verify(signature, _LABEL + body)
    except (binascii.Error, ValueError, FormatError, InvalidSignature) as error:
        raise TokenError("the enrolment token is damaged: copy all of it, or ask for a new one") from error
    return Token(name, frozenset(role for role in Role if bits >> role & 1), issued_s, valid_until_s, authority)
