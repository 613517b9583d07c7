"""Keys of the mesh's tests, which follow from names, and who may sign what."""

import hashlib
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bundles import receipt as receipt_format
from bundles.bundle import Bundle, Header, Kind, sign
from bundles.receipt import Receipt, Role

STRANGERS = ("stranger",)
"""Names without a certificate."""
DAY_S = 86_400


@cache
def key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def originators(name: str) -> Ed25519PublicKey | None:
    return None if name in STRANGERS else key(name).public_key()


def signers(name: str, role: Role) -> Ed25519PublicKey | None:
    """Gateways are called `gateway…`; every agent may sign as a recipient."""
    is_entitled = name.startswith("gateway") if role is Role.GATEWAY else name not in STRANGERS
    return key(name).public_key() if is_entitled else None


def header(sequence: int = 1, originator: str = "a", destination: str = "platform", **more: int) -> Header:
    fields = {"incarnation": 7, "created_ms": 1_000, "lifetime_s": DAY_S, "low_water": 1, **more}
    return Header(
        *(originator, fields["incarnation"], sequence, destination, Kind.MESSAGE),
        *(fields["created_ms"], fields["lifetime_s"], fields["low_water"]),
    )


def bundle(sequence: int = 1, originator: str = "a", *, size: int = 20, signer: str = "", **more: int | str) -> Bundle:
    """A bundle of `originator`, signed by its key or that of `signer`."""
    made = header(sequence, originator, **more)  # type: ignore[arg-type]
    return sign(made, bytes([sequence % 256]) * size, key(signer or originator))


def receipt(message_id: str, signer: str = "gateway", role: Role = Role.GATEWAY, by: str = "") -> Receipt:
    """A receipt that says it is of `signer`, signed by its key or that of `by`."""
    return receipt_format.sign(message_id, role, signer, 5_000, key(by or signer))
