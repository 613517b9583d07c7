"""Keys of the mesh's tests, which follow from names, and who may sign what."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bundles import receipt as receipt_format
from bundles.bundle import Bundle, Header, Kind, sign
from bundles.certificates import Certificate, issue, new_authority
from bundles.identity import Identity
from bundles.receipt import Receipt, Role

STRANGERS = ("stranger",)
"""Names without a certificate."""
DAY_S = 86_400
NOW_S = 1_700_000_000


@cache
def key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


@cache
def sealing_key(name: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(hashlib.sha256(f"sealing {name}".encode()).digest())


def authority_key() -> Ed25519PrivateKey:
    return key("the authority")


AUTHORITY = new_authority("tests", authority_key(), NOW_S, 100 * 365 * DAY_S)


def certificate(
    name: str, *, roles: Iterable[Role] = (Role.RECIPIENT,), now_s: float = NOW_S, key_of: str = ""
) -> Certificate:
    """Of `name`, with the keys that follow from it or from `key_of`."""
    owner = key_of or name
    keys = key(owner).public_key(), sealing_key(owner).public_key()
    return issue(AUTHORITY, authority_key(), name, *keys, roles, now_s)


def identity(name: str, *, roles: Iterable[Role] = (Role.RECIPIENT,), now_s: float = NOW_S) -> Identity:
    return Identity(certificate(name, roles=roles, now_s=now_s), key(name), [sealing_key(name)])


def originators(name: str) -> Sequence[Ed25519PublicKey]:
    return () if name in STRANGERS else (key(name).public_key(),)


def signers(name: str, role: Role) -> Sequence[Ed25519PublicKey]:
    """Gateways are called `gateway…`; every agent may sign as a recipient."""
    is_entitled = name.startswith("gateway") if role is Role.GATEWAY else name not in STRANGERS
    return (key(name).public_key(),) if is_entitled else ()


def header(sequence: int = 1, originator: str = "a", destination: str = "platform", **more: int) -> Header:
    kind = Kind.ENVELOPE if destination.startswith("@") else Kind.MESSAGE
    fields = {"incarnation": 7, "created_ms": 1_000, "lifetime_s": DAY_S, "low_water": 1, "ended_below": 1, **more}
    return Header(
        *(originator, fields["incarnation"], sequence, destination, kind),
        *(fields["created_ms"], fields["lifetime_s"], fields["low_water"], fields["ended_below"]),
    )


def bundle(sequence: int = 1, originator: str = "a", *, size: int = 20, signer: str = "", **more: int | str) -> Bundle:
    """A bundle of `originator`, signed by its key or that of `signer`."""
    made = header(sequence, originator, **more)  # type: ignore[arg-type]
    return sign(made, bytes([sequence % 256]) * size, key(signer or originator))


def receipt(message_id: str, signer: str = "gateway", role: Role = Role.GATEWAY, by: str = "") -> Receipt:
    """A receipt that says it is of `signer`, signed by its key or that of `by`."""
    return receipt_format.sign(message_id, role, signer, 5_000, key(by or signer))
