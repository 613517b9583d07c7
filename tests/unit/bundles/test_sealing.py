"""Payloads that only their recipient can read, and what is in them (M17)."""

import contextlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from bundles import content as content_format
from bundles.content import Content
from bundles.errors import FormatError, SealError
from bundles.sealing import OVERHEAD_BYTES, seal, unseal
from tests.draw import generator
from tests.unit.bundles.keys import header, identity, sealing_key

HEADER = header(destination="@r")


@given(st.binary(max_size=300))
def test_the_recipient_opens_what_was_sealed_to_it(plaintext: bytes) -> None:
    sealed = seal(HEADER, plaintext, sealing_key("r").public_key())
    assert len(sealed) == len(plaintext) + OVERHEAD_BYTES
    assert unseal(HEADER, sealed, [sealing_key("r")]) == plaintext
    assert unseal(HEADER, sealed, [X25519PrivateKey.generate(), sealing_key("r")]) == plaintext


def test_nobody_else_opens_it_and_it_shows_nothing() -> None:
    sealed = seal(HEADER, b"a secret" * 20, sealing_key("r").public_key())
    assert b"secret" not in sealed
    with pytest.raises(SealError):
        unseal(HEADER, sealed, [sealing_key("b")])
    with pytest.raises(SealError):
        unseal(HEADER, sealed, [])


def test_what_was_changed_does_not_open() -> None:
    """Also the header: a payload cannot be put under another destination, originator or number."""
    sealed, draws = seal(HEADER, b"payload", sealing_key("r").public_key()), generator("mutated payloads")
    for other in (
        replace(HEADER, sequence=2),
        replace(HEADER, destination="@q"),
        replace(HEADER, originator="b"),
        replace(HEADER, lifetime_s=1),
    ):
        with pytest.raises(SealError):
            unseal(other, sealed, [sealing_key("r")])
    for size in range(len(sealed)):
        with pytest.raises(SealError):
            unseal(HEADER, sealed[:size], [sealing_key("r")])
    for _ in range(200):
        changed = bytearray(sealed)
        changed[draws.randrange(len(sealed))] ^= 1 << draws.randrange(8)
        with contextlib.suppress(SealError):  # X25519 ignores a bit of the encapsulated key
            assert unseal(HEADER, bytes(changed), [sealing_key("r")]) == b"payload"


def test_an_identity_unseals_its_bundles() -> None:
    recipient = identity("r")
    sealed = identity("a").bundle(HEADER, seal(HEADER, b"payload", recipient.certificate.sealing_key))
    assert recipient.unseal(sealed) == b"payload"


@given(
    st.builds(
        Content,
        payload=st.binary(max_size=50),
        content_type=st.text(max_size=10),
        user_properties=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3),
        retain=st.booleans(),
        response_topic=st.text(max_size=5),
        correlation_data=st.binary(max_size=5),
    )
)
def test_content_comes_back_as_it_was(content: Content) -> None:
    encoded = content_format.encode(content)
    assert content_format.decode(encoded) == content
    for size in range(len(encoded)):
        with pytest.raises(FormatError):
            content_format.decode(encoded[:size])
