"""Who gets a certificate by a token, whose is renewed, and who is refused, with clear words (M5)."""

import base64
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import CertificateSigningRequestBuilder, Name
from hypothesis import given
from hypothesis import strategies as st

from bundles import certificate_request, enrolment_token
from bundles import revocations as revocation_format
from bundles.certificates import BACKDATED_S, GRACE_S, Certificate, new_authority
from bundles.enrolment_token import PREFIX, Token
from bundles.errors import BundleError, CertificateError, FormatError, IssueRefused, TokenError
from bundles.issuer import Issuer
from bundles.receipt import Role
from bundles.revocations import ENCODED_BYTES_MAX, NONE, Revocations
from tests.draw import generator
from tests.unit.bundles.keys import AUTHORITY, DAY_S, NOW_S, authority_key, certificate, key, sealing_key

ISSUER = Issuer(AUTHORITY, authority_key(), 7 * DAY_S)
SEALING = sealing_key("van").public_key().public_bytes_raw()
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60)


def token(
    name: str = "van", *roles: Role, issued_s: int = NOW_S, valid_s: int = 3_600, by: str = "the authority"
) -> str:
    return enrolment_token.sign(name, roles or (Role.RECIPIENT,), issued_s, issued_s + valid_s, key(by))


def enrol(text: str, *, now_s: float = NOW_S, revocations: Revocations = NONE, of: str = "van") -> Certificate:
    return ISSUER.enrol(text, certificate_request.make(key(of)), SEALING, revocations, now_s)


def renew(present: Certificate, *, now_s: float = NOW_S, revocations: Revocations = NONE, of: str = "") -> Certificate:
    return ISSUER.renew(present.der, certificate_request.make(key(of or present.name)), SEALING, revocations, now_s)


def revoked(name: str, before_s: int) -> Revocations:
    return revocation_format.sign(2, NOW_S, {name: before_s}, authority_key())


@given(names, st.sets(st.sampled_from([Role.RECIPIENT, Role.EXIT_AGENT])))
def test_a_token_says_what_it_was_made_for(name: str, roles: set[Role]) -> None:
    made = enrolment_token.sign(name, roles, NOW_S, NOW_S + 60, authority_key())
    public = authority_key().public_key().public_bytes_raw()
    assert enrolment_token.read(f" {made}\n") == Token(name, frozenset(roles), NOW_S, NOW_S + 60, public)


def test_a_changed_or_cut_token_is_none() -> None:
    whole = token()
    for size in range(len(whole)):
        with pytest.raises(TokenError):
            enrolment_token.read(whole[:size])
    raw = base64.urlsafe_b64decode(whole.removeprefix(PREFIX) + "==")
    for at in range(len(raw)):
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        with pytest.raises(TokenError):
            enrolment_token.read(PREFIX + base64.urlsafe_b64encode(changed).rstrip(b"=").decode())


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_no_token(text: str, has_prefix: bool) -> None:
    with pytest.raises(TokenError):
        enrolment_token.read(PREFIX + text if has_prefix else text)


def test_no_token_gives_the_role_of_a_gateway() -> None:
    with pytest.raises(TokenError, match="gateway"):
        token("van", Role.GATEWAY)


def test_a_token_gives_a_certificate_of_its_name_and_roles() -> None:
    made = enrol(token("van", Role.EXIT_AGENT))
    assert (made.name, made.roles) == ("van", {Role.RECIPIENT, Role.EXIT_AGENT})
    assert made.key == key("van").public_key()
    assert made.sealing_key == sealing_key("van").public_key()
    assert (made.not_before_s, made.not_after_s) == (NOW_S - BACKDATED_S, NOW_S + 7 * DAY_S)


def test_expired_foreign_and_revoked_tokens_are_refused() -> None:
    with pytest.raises(IssueRefused, match="has expired"):
        enrol(token(), now_s=NOW_S + 3_600)
    with pytest.raises(IssueRefused, match="another authority"):
        enrol(token(by="another authority"))
    with pytest.raises(IssueRefused, match="revoked after the enrolment token"):
        enrol(token(), revocations=revoked("van", NOW_S + 1), now_s=NOW_S + 2)


def test_a_device_that_was_revoked_can_be_enrolled_again_at_once() -> None:
    """Though certificates are issued a little before their time."""
    listed = revoked("van", NOW_S)
    made = enrol(token(issued_s=NOW_S), revocations=listed, now_s=NOW_S + 1)
    assert not listed.revokes(made)
    assert made.is_valid(NOW_S + 1)
    with pytest.raises(IssueRefused, match="clock"):
        enrol(token(issued_s=NOW_S + 9_000), revocations=revoked("van", NOW_S + 9_000))


def test_a_renewed_certificate_has_the_same_name_key_and_roles() -> None:
    present = certificate("van", roles=(Role.RECIPIENT, Role.EXIT_AGENT))
    late = present.not_after_s + GRACE_S - 1
    made = renew(present, now_s=late)
    assert replace(made, der=b"", not_before_s=0, not_after_s=0, sealing_key=present.sealing_key) == replace(
        present, der=b"", not_before_s=0, not_after_s=0
    )
    assert made.not_after_s == late + 7 * DAY_S


def test_who_is_revoked_too_late_or_has_another_key_is_not_renewed() -> None:
    present = certificate("van")
    with pytest.raises(IssueRefused, match="is revoked"):
        renew(present, revocations=revoked("van", NOW_S))
    with pytest.raises(IssueRefused, match="more than 30 days ago"):
        renew(present, now_s=present.not_after_s + GRACE_S)
    with pytest.raises(IssueRefused, match="not signed by the key"):
        renew(present, of="another")
    other = new_authority("other", key("other"), NOW_S, DAY_S)
    with pytest.raises(CertificateError):
        Issuer(other, authority_key())
    with pytest.raises(CertificateError):
        Issuer(other, key("other")).renew(present.der, certificate_request.make(key("van")), SEALING, NONE, NOW_S)


def test_a_request_shows_that_its_sender_has_the_key() -> None:
    request = certificate_request.make(key("van"))
    assert certificate_request.read(request) == key("van").public_key()
    draws = generator("changed requests")
    for _ in range(100):
        changed = bytearray(request)
        changed[draws.randrange(len(request))] ^= 1 << draws.randrange(8)
        try:
            found = certificate_request.read(bytes(changed))
        except CertificateError:
            continue
        assert found == key("van").public_key()
    for size in range(0, len(request), 5):
        with pytest.raises(CertificateError):
            certificate_request.read(request[:size])
    builder = CertificateSigningRequestBuilder(Name([]))
    other = builder.sign(generate_private_key(SECP256R1()), SHA256()).public_bytes(Encoding.DER)
    with pytest.raises(CertificateError, match="not Ed25519"):
        certificate_request.read(other)
    with pytest.raises(CertificateError, match="larger"):
        certificate_request.read(bytes(5_000))


@pytest.mark.parametrize("sealing", [b"", b"x" * 31])
def test_a_malformed_sealing_key_is_refused(sealing: bytes) -> None:
    with pytest.raises(BundleError, match="sealing key"):
        ISSUER.enrol(token(), certificate_request.make(key("van")), sealing, NONE, NOW_S)


def test_a_list_that_no_contact_could_carry_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match="larger"):
        revocation_format.read(bytes(ENCODED_BYTES_MAX + 1), AUTHORITY.key)
    monkeypatch.setattr(revocation_format, "ENCODED_BYTES_MAX", 100)
    with pytest.raises(FormatError, match="larger"):
        revocation_format.sign(1, 0, {"a name": 1, "another": 2}, authority_key())


@pytest.mark.parametrize("raw", [bytes(32), b"\x01" + bytes(31), bytes(31)], ids=["zero", "one", "short"])
def test_a_key_to_which_nothing_can_be_sealed_is_refused(raw: bytes) -> None:
    """RFC 7748, 6.1: a point of low order would end each agent that writes to its owner."""
    request = certificate_request.make(key("c"))
    with pytest.raises(CertificateError, match="sealing key"):
        ISSUER.renew(certificate("c").der, request, raw, NONE, NOW_S + 1)
