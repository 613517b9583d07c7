"""Delivery receipts, signed by recipient, exit agent or gateway: only these let a carrier drop a copy (M8, M12).

    version 1 | message id 16 | role 1 | signer's name | delivered at 8 | signature 64

Any enrolled peer can lie, so a peer's word that a message was delivered is no reason to drop it. A receipt can be
passed on by anybody, because everybody can check it. `Signers` answers which keys a name has that may sign in a role.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final, NewType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bundles.bundle import SIGNATURE_BYTES, Header
from bundles.errors import FormatError, SignatureError
from bundles.wire import ID_BYTES, NAME_BYTES_MAX, Reader, write_id, write_text, write_uint

VERSION: Final = 1
RECEIPT_BYTES_MAX: Final = 1 + ID_BYTES + 1 + 2 + NAME_BYTES_MAX + 8 + SIGNATURE_BYTES
_LABEL: Final = b"waystation receipt 1\0"


class Role(IntEnum):
    """As what the signer delivered the message."""

    RECIPIENT = 1  # its agent has stored it for the application
    EXIT_AGENT = 2  # handed to the real server, e.g. by SMTP
    GATEWAY = 3  # stored by the platform


Signers = Callable[[str, Role], Sequence[Ed25519PublicKey]]
"""The keys of a name that may sign in the role, by its certificates and the revocation list; none if it may not."""


@dataclass(frozen=True)
class Receipt:
    """That `signer` delivered the message, and when, in milliseconds since the epoch by its clock."""

    message_id: str
    role: Role
    signer: str
    delivered_ms: int
    signature: bytes

    def settles(self, header: Header) -> bool:
        """See :func:`settles`."""
        return settles(self.role, self.signer, header)

    @cached_property
    def encoded(self) -> bytes:
        """The receipt as bytes."""
        return _encode_signed(self.message_id, self.role, self.signer, self.delivered_ms) + self.signature


def settles(role: Role, signer: str, header: Header) -> bool:
    """Whether the signer may say this of the message: a recipient, of its own only. Every agent is the recipient of
    something, so without this any of them could make any message disappear."""
    return role is not Role.RECIPIENT or signer == header.recipient


def sign(message_id: str, role: Role, signer: str, delivered_ms: int, key: Ed25519PrivateKey) -> Receipt:
    """A new receipt. Raises FormatError if a field does not fit."""
    signature = key.sign(_LABEL + _encode_signed(message_id, role, signer, delivered_ms))
    return Receipt(message_id, role, signer, delivered_ms, signature)


VerifiedReceipt = NewType("VerifiedReceipt", Receipt)
"""One that :func:`verify` has returned: who takes it need not check its signature again."""


def verify(receipt: Receipt, signers: Signers) -> VerifiedReceipt:
    """The receipt. Raises SignatureError unless it was signed by one who may sign it."""
    keys = signers(receipt.signer, receipt.role)
    if not keys:
        raise SignatureError(f"{receipt.signer} may not sign receipts as {receipt.role.name.lower()}")
    for key in keys:
        with suppress(InvalidSignature):
            key.verify(receipt.signature, _LABEL + receipt.encoded[:-SIGNATURE_BYTES])
            return VerifiedReceipt(receipt)
    raise SignatureError(f"the receipt for {receipt.message_id} was not signed by {receipt.signer}")


def decode(raw: bytes) -> Receipt:
    """The receipt in `raw`, not verified yet. Raises FormatError for bytes that are not exactly one receipt."""
    reader = Reader(raw)
    version = reader.uint(1)
    if version != VERSION:
        raise FormatError(f"receipt version {version} is not {VERSION}")
    message_id, number = reader.message_id(), reader.uint(1)
    if number not in set(Role):
        raise FormatError(f"role {number} of a receipt is unknown")
    signer, delivered_ms = reader.text(NAME_BYTES_MAX), reader.uint(8)
    signature = reader.take(SIGNATURE_BYTES)
    reader.finish()
    return Receipt(message_id, Role(number), signer, delivered_ms, signature)


def peek_id(raw: bytes) -> str:
    """The message id of an encoded receipt, to tell whether it is known before more is done. Raises FormatError."""
    reader = Reader(raw)
    reader.take(1)
    return reader.message_id()


def _encode_signed(message_id: str, role: Role, signer: str, delivered_ms: int) -> bytes:
    head = write_uint(VERSION, 1, "version") + write_id(message_id) + write_uint(role, 1, "role")
    return head + write_text(signer, NAME_BYTES_MAX, "the signer") + write_uint(delivered_ms, 8, "delivery time")
