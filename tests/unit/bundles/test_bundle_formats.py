"""Bundles and receipts: round trips, every truncation, mutated bytes, and who signed them (M8, M12, M14)."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles import bundle as bundle_format
from bundles import receipt as receipt_format
from bundles.bundle import SEQUENCE_MAX, Bundle, Header, Kind
from bundles.errors import BundleError, FormatError, SignatureError
from bundles.receipt import Role
from schemas.identity import message_id_of
from tests.draw import generator
from tests.unit.bundles.keys import bundle, header, key, originators, receipt, signers

texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=50)
u64 = st.integers(0, 2**64 - 1)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    sequence, kind = draw(st.integers(1, SEQUENCE_MAX)), draw(st.sampled_from(Kind))
    return Header(
        originator=draw(texts),
        incarnation=draw(u64),
        sequence=sequence,
        destination=draw(texts) if kind is Kind.MESSAGE else f"@{draw(texts)}",
        kind=kind,
        created_ms=draw(u64),
        lifetime_s=draw(st.integers(1, 2**32 - 1)),
        low_water=(low_water := draw(st.integers(1, sequence))),
        ended_below=draw(st.integers(1, low_water)),
    )


def verify(what: Bundle) -> None:
    bundle_format.verify(what, originators(what.header.originator))


@given(headers(), st.binary(max_size=200), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_a_bundle_comes_back_as_it_was(header: Header, ciphertext: bytes, hops: int, age_s: int) -> None:
    made = replace(bundle_format.sign(header, ciphertext, key("a")), hops=hops, age_s=age_s)
    encoded = bundle_format.encode(made)
    assert bundle_format.decode(encoded) == made
    assert len(encoded) == made.size
    assert bundle_format.encode(bundle_format.decode(encoded)) == encoded


@pytest.mark.parametrize("encoded", [bundle_format.encode(bundle()), receipt(bundle().message_id).encoded])
def test_every_truncation_is_an_error(encoded: bytes) -> None:
    decode = bundle_format.decode if len(encoded) > 140 else receipt_format.decode
    for size in range(len(encoded)):
        with pytest.raises(FormatError):
            decode(encoded[:size])
    with pytest.raises(FormatError, match="follow"):
        decode(encoded + b"\0")


def mutated(encoded: bytes, draws: random.Random) -> bytes:
    changed = bytearray(encoded)
    for _ in range(draws.randint(1, 3)):
        changed[draws.randrange(len(changed))] ^= draws.randint(1, 255)
    return bytes(changed)


def test_mutated_bytes_are_refused_or_change_only_what_is_not_signed() -> None:
    draws, encoded = generator("mutated bundles"), bundle_format.encode(bundle())
    for _ in range(3_000):
        try:
            found = bundle_format.decode(mutated(encoded, draws))
            verify(found)
        except BundleError:
            continue
        assert (found.header, found.ciphertext) == (bundle().header, bundle().ciphertext)


def test_mutated_receipts_are_refused() -> None:
    draws, encoded = generator("mutated receipts"), receipt(bundle().message_id).encoded
    for _ in range(3_000):
        changed = mutated(encoded, draws)
        if changed != encoded:
            with pytest.raises(BundleError):
                receipt_format.verify(receipt_format.decode(changed), signers)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_error_of_the_mesh(raw: bytes) -> None:
    for decode in (bundle_format.decode, receipt_format.decode, bundle_format.decode_header):
        with pytest.raises(FormatError):
            decode(raw)


def test_only_the_originator_signs_its_bundles() -> None:
    verify(bundle())
    with pytest.raises(SignatureError, match="not that of a"):
        verify(bundle(signer="b"))
    with pytest.raises(SignatureError):
        verify(replace(bundle(), ciphertext=b"another"))


def test_hop_count_and_age_may_change() -> None:
    carried = bundle().carried(90).carried(30)
    verify(carried)
    assert (carried.hops, carried.age_s) == (2, 120)
    assert carried.remaining_s == carried.header.lifetime_s - 120


def test_a_message_has_one_id_on_every_way_and_no_other_has_it() -> None:
    """M14: the id follows from originator, incarnation and sequence."""
    assert (
        bundle().message_id
        == message_id_of("a", 7, 1)
        == bundle_format.decode(bundle_format.encode(bundle())).message_id
    )
    others = {message_id_of(*source) for source in [("a", 7, 1), ("a", 7, 2), ("a", 8, 1), ("b", 7, 1), ("a/7", 7, 1)]}
    assert len(others) == 5


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"lifetime_s": 0}, "lifetime"),
        ({"low_water": 2}, "low-water"),
        ({"ended_below": 2}, "what has ended"),
        ({"sequence": SEQUENCE_MAX + 1}, "sequence"),
        ({"originator": ""}, "originator"),
        ({"originator": "x" * 256}, "more than 255"),
        ({"destination": "\ud800"}, "surrogates"),
        ({"incarnation": 2**64}, "incarnation"),
    ],
)
def test_a_field_that_does_not_fit_is_an_error(wrong: dict[str, object], detail: str) -> None:
    with pytest.raises(FormatError, match=detail):
        bundle_format.sign(replace(header(), **wrong), b"", key("a"))  # type: ignore[arg-type]


def test_a_bundle_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(FormatError, match="longer than 10"):
        bundle_format.decode(bundle_format.encode(bundle(size=11)), 10)


def test_a_receipt_is_signed_by_one_who_may_sign_it() -> None:
    """M8, M12: recipient, exit agent or gateway."""
    message_id = bundle().message_id
    receipt_format.verify(receipt(message_id), signers)
    receipt_format.verify(receipt(message_id, "b", Role.RECIPIENT), signers)
    with pytest.raises(SignatureError, match="may not sign receipts as gateway"):
        receipt_format.verify(receipt(message_id, "b"), signers)
    with pytest.raises(SignatureError, match="was not signed by gateway"):
        receipt_format.verify(receipt(message_id, "gateway", by="b"), signers)
    with pytest.raises(SignatureError):
        receipt_format.verify(replace(receipt(message_id), message_id=bundle(2).message_id), signers)
