"""Certificates of the mesh, revocation, and what is known of a name (M5, M17)."""

import ssl
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_der_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from bundles import revocations as revocation_format
from bundles.certificates import GRACE_S, LIFETIME_S, Authority, Certificate, new_authority
from bundles.errors import BundleError, CertificateError, FormatError, SignatureError
from bundles.identity import Identity, private_pem, read_sealing_key, read_signing_key
from bundles.known_certificates import OF_A_NAME_MAX, KnownCertificates
from bundles.receipt import Role
from tests.draw import generator
from tests.unit.bundles.keys import AUTHORITY, NOW_S, authority_key, certificate, identity, key

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60)


def known(*certificates: Certificate, now_s: float = NOW_S, **more: int) -> KnownCertificates:
    made = KnownCertificates(AUTHORITY, lambda: now_s, **more)  # type: ignore[arg-type]
    for one in certificates:
        made.add(one.der)
    return made


@given(names, st.sets(st.sampled_from(Role)))
def test_a_certificate_says_what_it_was_issued_for(name: str, roles: set[Role]) -> None:
    issued = certificate(name, roles=roles)
    assert AUTHORITY.read(issued.der) == issued
    assert (issued.name, issued.roles) == (name, roles)
    assert issued.key == key(name).public_key()
    assert issued.not_after_s == NOW_S + LIFETIME_S


def test_only_certificates_of_the_authority_are_read() -> None:
    other = new_authority("another", key("another authority"), NOW_S, 1_000)
    with pytest.raises(CertificateError):
        other.read(certificate("a").der)
    with pytest.raises(CertificateError, match="not one of the mesh"):
        AUTHORITY.read(AUTHORITY.certificate.public_bytes(Encoding.DER))
    assert Authority.from_pem(AUTHORITY.pem).read(certificate("a").der).name == "a"


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_changed_certificate_says_nothing_else() -> None:
    """The signature's encoding has a byte that means nothing; all others are protected."""
    draws, der = generator("mutated certificates"), certificate("a").der
    for _ in range(300):
        changed = bytearray(der)
        changed[draws.randrange(len(der))] ^= 1 << draws.randrange(8)
        with suppress(CertificateError):
            assert replace(AUTHORITY.read(bytes(changed)), der=der) == AUTHORITY.read(der)
    for size in range(0, len(der), 7):
        with pytest.raises(CertificateError):
            AUTHORITY.read(der[:size])


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 256, "\ud800"])
def test_a_name_that_does_not_fit_gets_no_certificate(name: str) -> None:
    with pytest.raises(CertificateError):
        certificate(name, key_of="a")


def test_an_identity_has_the_keys_of_its_certificate() -> None:
    one = identity("a")
    assert read_signing_key(private_pem(one.key)).public_key() == one.certificate.key
    assert read_sealing_key(private_pem(one.sealing_keys[0])).public_key() == one.certificate.sealing_key
    with pytest.raises(CertificateError):
        Identity(one.certificate, key("b"), one.sealing_keys)
    with pytest.raises(CertificateError):
        Identity(one.certificate, one.key, [X25519PrivateKey.generate()])
    for wrong in (b"", private_pem(one.sealing_keys[0])):
        with pytest.raises(CertificateError):
            read_signing_key(wrong)


def test_certificates_authenticate_both_ends_of_a_tls_link(tmp_path: Path) -> None:
    """M5: OpenSSL accepts them, and each end learns the other's name."""

    def context(name: str, side: int) -> ssl.SSLContext:
        made = ssl.SSLContext(side)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname, made.verify_mode = False, ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        made.load_verify_locations(cadata=AUTHORITY.pem.decode())
        file = tmp_path / f"{name}.pem"
        x509 = load_der_x509_certificate(fresh[name].certificate.der)
        file.write_bytes(private_pem(fresh[name].key) + x509.public_bytes(Encoding.PEM))
        made.load_cert_chain(file)
        return made

    fresh = {name: identity(name, now_s=time.time()) for name in ("server ü", "client 1")}
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context("server ü", ssl.PROTOCOL_TLS_SERVER).wrap_bio(to_server, to_client, server_side=True)
    client = context("client 1", ssl.PROTOCOL_TLS_CLIENT).wrap_bio(to_client, to_server)
    done: set[ssl.SSLObject] = set()
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    assert done == {client, server}
    found = [AUTHORITY.read(end.getpeercert(binary_form=True) or b"").name for end in (client, server)]
    assert found == ["server ü", "client 1"]


def test_what_is_known_of_a_name() -> None:
    """Renewed certificates replace those of the same key; those of other keys are kept, a few."""
    first, renewed = certificate("a"), certificate("a", now_s=NOW_S + 100)
    again = certificate("a", now_s=NOW_S + 200, key_of="a enrolled again")
    one = known(first, renewed, again)
    assert one.add(first.der) is None
    assert one.of("a") == (again, renewed)
    assert one.originator_keys("a") == (again.key, renewed.key)
    assert one.sealing_key("a") == again.sealing_key
    assert one.originator_keys("b") == ()
    assert one.sealing_key("b") is None
    for number in range(10):
        one.add(certificate("a", now_s=NOW_S + 300 + number, key_of=f"key {number}").der)
    assert len(one.of("a")) == OF_A_NAME_MAX


def test_roles_are_those_of_the_certificate() -> None:
    one = known(certificate("gateway", roles={Role.GATEWAY}), certificate("a", roles={Role.RECIPIENT}))
    assert one.signer_keys("gateway", Role.GATEWAY)
    assert not one.signer_keys("a", Role.GATEWAY)
    assert one.signer_keys("a", Role.RECIPIENT)
    assert one.sealing_key(None) == certificate("gateway", roles={Role.GATEWAY}).sealing_key
    assert known().sealing_key(None) is None


def test_an_expired_certificate_opens_no_link_but_its_signatures_count() -> None:
    late = known(certificate("a"), now_s=NOW_S + LIFETIME_S + 10)
    assert late.originator_keys("a")
    assert not late.is_trusted(certificate("a"))
    assert known(certificate("a")).is_trusted(certificate("a"))
    assert not known(certificate("a"), now_s=NOW_S + LIFETIME_S + GRACE_S + 10).originator_keys("a")


def test_a_revoked_name_is_known_no_more_until_it_is_enrolled_again() -> None:
    one = known(certificate("a"), certificate("b"))
    listed = revocation_format.sign(1, NOW_S, {"a": NOW_S + 1}, authority_key())
    assert one.take_revocations(listed.encoded)
    assert not one.take_revocations(listed.encoded)
    assert one.originator_keys("a") == ()
    assert not one.is_trusted(certificate("a"))
    assert one.originator_keys("b")
    one.add(certificate("a", now_s=NOW_S + 1_000, key_of="a again").der)
    assert one.originator_keys("a") == (key("a again").public_key(),)


def test_an_older_revocation_list_changes_nothing() -> None:
    one = known(certificate("a"))
    assert one.take_revocations(revocation_format.sign(2, NOW_S, {"a": NOW_S + 1}, authority_key()).encoded)
    assert not one.take_revocations(revocation_format.sign(1, NOW_S, {}, authority_key()).encoded)
    assert one.originator_keys("a") == ()


@given(st.integers(1, 2**64 - 1), st.dictionaries(names, st.integers(0, 2**64 - 1), max_size=5))
def test_a_revocation_list_comes_back_as_it_was(number: int, before_s: dict[str, int]) -> None:
    made = revocation_format.sign(number, NOW_S, before_s, authority_key())
    assert revocation_format.read(made.encoded, AUTHORITY.key) == made


def test_a_changed_revocation_list_is_refused() -> None:
    encoded, draws = revocation_format.sign(3, NOW_S, {"a": 5}, authority_key()).encoded, generator("mutated lists")
    for size in range(len(encoded)):
        with pytest.raises(BundleError):
            revocation_format.read(encoded[:size], AUTHORITY.key)
    for _ in range(200):
        changed = bytearray(encoded)
        changed[draws.randrange(len(encoded))] ^= 1 << draws.randrange(8)
        with pytest.raises(SignatureError):
            revocation_format.read(bytes(changed), AUTHORITY.key)
    with pytest.raises(SignatureError):
        revocation_format.read(encoded, Ed25519PrivateKey.generate().public_key())
    with pytest.raises(FormatError):
        revocation_format.sign(1, NOW_S, {"": 1}, authority_key())


def test_names_are_bounded_and_gateways_are_never_forgotten() -> None:
    one = known(certificate("gateway", roles={Role.GATEWAY}), most=3, kept=("a",))  # type: ignore[arg-type]
    for name in "abcdef":
        one.add(certificate(name).der)
    assert [name for name in ("gateway", *"abcdef") if one.of(name)] == ["gateway", "a", "f"]


def test_certificates_are_numbered_as_they_come_and_forgotten_ones_are_not_passed_on() -> None:
    """So that a peer is sent those that came since, and none that it has sent itself."""
    found = known(most=3)
    for name in "abcde":
        found.add(certificate(name).der, ("peer", 7) if name == "d" else None)
    assert [(one.number, one.certificate.name) for one in found.after(0)] == [(3, "c"), (4, "d"), (5, "e")]
    assert [one.certificate.name for one in found.after(3, ("peer", 7))] == ["e"]
    renewed = certificate("c", now_s=NOW_S + 1_000)
    assert found.add(renewed.der) == renewed
    assert [(one.number, one.certificate.name) for one in found.after(4)] == [(5, "e"), (6, "c")]
    assert (found.has(renewed.der), found.has(certificate("a").der)) == (True, False)
    assert [one.number for one in found.numbered("c")] == [6]
    found.take_revocations(revocation_format.sign(1, 0, {"e": NOW_S + 1}, authority_key()).encoded)
    assert [one.certificate.name for one in found.after(4)] == ["c"]
