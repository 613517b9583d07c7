"""The authority of a mesh, as a directory of files: it issues certificates and tokens, and revokes (M5).

| file | what |
|---|---|
| `authority.pem` | its certificate, which every device and gateway has |
| `authority-key.pem` | its key: who has it can be anybody. Keep it off devices, and back it up |
| `revocations.bin` | the revocation list, in force |
| `gateways/` | the certificates of gateways, which devices get when they enrol |
| `issued.jsonl` | a line for each certificate and token made here, without the token |
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from bundles import enrolment_token
from bundles import revocations as revocation_format
from bundles.certificates import LIFETIME_S, Authority, Certificate, issue, new_authority
from bundles.errors import BundleError, CertificateError
from bundles.identity import private_pem, read_signing_key
from bundles.receipt import Role
from bundles.revocations import NONE, Revocations
from edge.enrol import identity_files
from edge.enrol.errors import IdentityFilesError
from edge.enrol.private_files import FILE_MODE, make_directory, read, write
from schemas.enrolment import AUTHORITY_FILE, AUTHORITY_KEY_FILE, GATEWAYS_DIRECTORY, REVOCATIONS_FILE

AUTHORITY_LIFETIME_S: Final = 20 * 365 * 86_400
ISSUED_FILE: Final = "issued.jsonl"


class Revoked(NamedTuple):
    """A name on the list: its certificates issued before `before_s` are revoked."""

    name: str
    before_s: int


def init(directory: Path, name: str, now_s: float) -> Authority:
    """A new authority. Raises IdentityFilesError if the directory has one."""
    for file in (AUTHORITY_FILE, AUTHORITY_KEY_FILE):
        if (directory / file).exists():
            raise IdentityFilesError(f"{directory / file} exists and is not changed: give another directory")
    make_directory(directory)
    make_directory(directory / GATEWAYS_DIRECTORY)
    key = Ed25519PrivateKey.generate()
    authority = new_authority(name, key, now_s, AUTHORITY_LIFETIME_S)
    write(directory / AUTHORITY_KEY_FILE, private_pem(key))
    write(directory / REVOCATIONS_FILE, revocation_format.sign(1, int(now_s), {}, key).encoded)
    write(directory / AUTHORITY_FILE, authority.pem)
    return authority


class AuthorityFiles:
    """The authority in a directory. `now_s`: seconds since the epoch. Raises IdentityFilesError."""

    def __init__(self, directory: Path, now_s: Callable[[], float]) -> None:
        self._directory, self._now_s = directory, now_s
        try:
            self.authority = Authority.from_pem(read(directory / AUTHORITY_FILE, "authority (`waystation ca init`)"))
            self._key = read_signing_key(read(directory / AUTHORITY_KEY_FILE, "key of the authority"))
        except BundleError as error:
            raise IdentityFilesError(f"the authority in {directory} cannot be used: {error}") from error
        if self._key.public_key() != self.authority.key:
            raise IdentityFilesError(f"{directory / AUTHORITY_KEY_FILE} is not the key of {AUTHORITY_FILE}")

    def token(self, name: str, roles: Iterable[Role], valid_s: int) -> str:
        """An enrolment token. Raises BundleError for a name that does not fit."""
        now_s = int(self._now_s())
        made = enrolment_token.sign(name, roles, now_s, now_s + valid_s, self._key)
        self._note("token", name, roles, now_s + valid_s)
        return made

    def issue(self, name: str, roles: Iterable[Role], directory: Path, lifetime_s: int = LIFETIME_S) -> Certificate:
        """A new identity in `directory`, keys included, for a device that never asks a gateway, or for gateways."""
        if identity_files.is_enrolled(directory):
            raise IdentityFilesError(f"{directory} has a certificate, and is not changed: give another directory")
        key, sealing_key = identity_files.prepare_keys(directory)
        made = self._issue(name, key, sealing_key, roles, lifetime_s)
        if Role.GATEWAY in made.roles:
            make_directory(self._directory / GATEWAYS_DIRECTORY)
            pem = x509.load_der_x509_certificate(made.der).public_bytes(Encoding.PEM)
            write(self._directory / GATEWAYS_DIRECTORY / f"{made.key.public_bytes_raw().hex()[:16]}.pem", pem)
        identity_files.save(directory, made, self.authority, self.gateways(), self.revocations())
        self._note("certificate", name, roles, made.not_after_s)
        return made

    def revoke(self, names: Iterable[str]) -> Revocations:
        """A new list, on which these names are, too: all their certificates issued until now."""
        with self._lock():
            present = self.revocations()
            now_s = int(self._now_s())
            before_s = {**present.before_s, **dict.fromkeys(names, now_s)}
            made = revocation_format.sign(present.number + 1, now_s, before_s, self._key)
            write(self._directory / REVOCATIONS_FILE, made.encoded)
            return made

    def revocations(self) -> Revocations:
        """The list in force."""
        path = self._directory / REVOCATIONS_FILE
        try:
            return revocation_format.read(path.read_bytes(), self.authority.key) if path.exists() else NONE
        except BundleError as error:
            raise IdentityFilesError(f"{path} cannot be used: {error}; restore it from a backup") from error

    def gateways(self) -> list[Certificate]:
        """The certificates of gateways."""
        found = []
        for path in sorted((self._directory / GATEWAYS_DIRECTORY).glob("*.pem")):
            try:
                loaded = x509.load_pem_x509_certificate(read(path, "gateway's certificate"))
                found.append(self.authority.read(loaded.public_bytes(Encoding.DER)))
            except (ValueError, CertificateError) as error:
                raise IdentityFilesError(f"{path} cannot be used: {error}") from error
        return found

    def issued(self) -> list[dict[str, Any]]:
        """What was made here, the oldest first: `at_s`, `what`, `name`, `roles`, `until_s`."""
        path = self._directory / ISSUED_FILE
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in read(path, "list of what was issued").splitlines()]
        except ValueError as error:
            raise IdentityFilesError(f"{path} is damaged: {error}") from error

    def _issue(
        self,
        name: str,
        key: Ed25519PrivateKey,
        sealing_key: X25519PrivateKey,
        roles: Iterable[Role],
        lifetime_s: int,
    ) -> Certificate:
        from_s = self.revocations().before_s.get(name, 0)
        keys = key.public_key(), sealing_key.public_key()
        now_s = self._now_s()
        return issue(self.authority, self._key, name, *keys, roles, now_s, lifetime_s, not_before_s=from_s)

    def _note(self, what: str, name: str, roles: Iterable[Role], until_s: int) -> None:
        line = {
            "at_s": int(self._now_s()),
            "what": what,
            "name": name,
            "roles": sorted(role.name.lower() for role in set(roles)),
            "until_s": until_s,
        }
        try:
            flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
            with open(os.open(self._directory / ISSUED_FILE, flags, FILE_MODE), "ab") as output:
                output.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise IdentityFilesError(f"{self._directory / ISSUED_FILE} cannot be written: {error.strerror}") from error

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """So that two commands at once do not make two lists with one number."""
        try:
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise IdentityFilesError(f"{self._directory} cannot be read: {error.strerror}") from error
        try:
            flock(descriptor, LOCK_EX)
            yield
        finally:
            os.close(descriptor)
