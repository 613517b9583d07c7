"""The authority's directory: what it issues, revokes and remembers (M5)."""

from pathlib import Path

import pytest

from bundles import enrolment_token
from bundles.errors import BundleError
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Role
from edge.enrol.authority_files import AuthorityFiles, init
from edge.enrol.errors import IdentityFilesError
from edge.enrol.identity_files import load
from tests.unit.bundles.keys import NOW_S


def authority(directory: Path, now_s: float = NOW_S) -> AuthorityFiles:
    if not directory.exists():
        init(directory, "tests", NOW_S)
    return AuthorityFiles(directory, lambda: now_s)


def test_an_authority_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    made = authority(tmp_path / "ca")
    assert (tmp_path / "ca").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "ca" / "authority-key.pem").stat().st_mode & 0o777 == 0o600
    key = (tmp_path / "ca" / "authority-key.pem").read_bytes()
    with pytest.raises(IdentityFilesError, match="is not changed"):
        init(tmp_path / "ca", "tests", NOW_S)
    assert (tmp_path / "ca" / "authority-key.pem").read_bytes() == key
    assert (made.revocations().number, made.revocations().before_s) == (1, {})


def test_an_identity_issued_as_files_is_one_of_the_mesh(tmp_path: Path) -> None:
    """M5, M17: without any gateway; with the gateways' certificates, so that it can seal messages to the platform."""
    made = authority(tmp_path / "ca")
    platform = made.issue("platform", {Role.GATEWAY}, tmp_path / "platform")
    made.issue("van-7", {Role.RECIPIENT, Role.EXIT_AGENT}, tmp_path / "van")
    stored = load(tmp_path / "van")
    known = KnownCertificates(stored.authority, lambda: NOW_S, revocations=stored.revocations)
    for one in (stored.identity.certificate, *stored.gateways):
        known.add(one.der)
    assert known.signer_keys("van-7", Role.EXIT_AGENT)
    assert known.sealing_key(None) == platform.sealing_key
    assert load(tmp_path / "platform").identity.name == "platform"
    with pytest.raises(IdentityFilesError, match="is not changed"):
        made.issue("van-8", {Role.RECIPIENT}, tmp_path / "van")


def test_a_revoked_name_loses_what_it_had_and_can_get_new_files(tmp_path: Path) -> None:
    made = authority(tmp_path / "ca")
    before = made.issue("van-7", {Role.RECIPIENT}, tmp_path / "van")
    assert made.revoke(["van-7", "van-8"]).number == 2
    listed = authority(tmp_path / "ca", NOW_S + 5).revoke(["z"])
    assert (listed.number, set(listed.before_s)) == (3, {"van-7", "van-8", "z"})
    assert listed.revokes(before)
    again = made.issue("van-7", {Role.RECIPIENT}, tmp_path / "again")
    assert not listed.revokes(again)


def test_what_was_issued_is_listed_without_tokens(tmp_path: Path) -> None:
    made = authority(tmp_path / "ca")
    token = made.token("van-7", {Role.RECIPIENT}, 60)
    made.issue("platform", {Role.GATEWAY}, tmp_path / "platform")
    assert [(one["what"], one["name"], one["roles"]) for one in made.issued()] == [
        ("token", "van-7", ["recipient"]),
        ("certificate", "platform", ["gateway"]),
    ]
    assert made.issued()[0]["until_s"] == NOW_S + 60
    assert token not in (tmp_path / "ca" / "issued.jsonl").read_text()
    assert enrolment_token.read(token).name == "van-7"
    with pytest.raises(BundleError):
        made.token("a\0b", {Role.RECIPIENT}, 60)


@pytest.mark.parametrize("name", ["authority.pem", "authority-key.pem", "revocations.bin", "gateways/x.pem"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    authority(tmp_path / "ca")
    (tmp_path / "ca" / name).write_bytes(b"nothing")
    with pytest.raises(IdentityFilesError, match="cannot be used"):
        authority(tmp_path / "ca").issue("van-7", {Role.RECIPIENT}, tmp_path / "van")
    with pytest.raises(IdentityFilesError, match="waystation ca init"):
        AuthorityFiles(tmp_path / "nowhere", lambda: NOW_S)
