"""The directory of an identity: who this device is, with its private keys (M5, M17).

| file | what |
|---|---|
| `certificate.pem` | the certificate in use |
| `key.pem` | its signing key (Ed25519), made here; it never leaves the device |
| `sealing-key.pem`, `sealing-key.N.pem` | keys that payloads are sealed to (X25519); N: the second when it was made |
| `authority.pem` | the authority's certificate |
| `gateways.pem` | certificates of gateways, so that a message to the platform can be sealed at once |
| `revocations.bin` | the newest revocation list that was stored here; may be missing |

Each file is replaced whole. The certificate is written last, and says which sealing key is in use: so the directory is
consistent at each moment, and a renewal that a crash interrupts is simply done again. Sealing keys that are not in use
are kept for as long as a payload sealed to them may arrive.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from bundles import revocations as revocation_format
from bundles.certificates import GRACE_S, LIFETIME_S, Authority, Certificate
from bundles.errors import BundleError
from bundles.identity import Identity, private_pem, read_sealing_key, read_signing_key
from bundles.revocations import NONE, Revocations
from edge.enrol.errors import IdentityFilesError
from edge.enrol.private_files import make_directory, read, write

CERTIFICATE: Final = "certificate.pem"
KEY: Final = "key.pem"
SEALING_KEY: Final = "sealing-key.pem"
AUTHORITY: Final = "authority.pem"
GATEWAYS: Final = "gateways.pem"
REVOCATIONS: Final = "revocations.bin"
SEALING_KEY_KEPT_S: Final = LIFETIME_S + 2 * GRACE_S
"""After its successor was made: others may seal to it until its certificate counts no more, and what they have sealed
lives on for as long as a bundle may."""

_ATTEMPTS_S: Final = 86_400


class Stored(NamedTuple):
    """What an identity's directory holds. `gateways`: their certificates."""

    identity: Identity
    authority: Authority
    revocations: Revocations
    gateways: Sequence[Certificate]


class _SealingKey(NamedTuple):
    made_s: int
    path: Path
    key: X25519PrivateKey


def is_enrolled(directory: Path) -> bool:
    """Whether there is a certificate."""
    return (directory / CERTIFICATE).exists()


def load(directory: Path) -> Stored:
    """The identity. Raises IdentityFilesError, which names the file and says what to do."""
    if not is_enrolled(directory):
        raise IdentityFilesError(
            f"this device is not enrolled: {directory / CERTIFICATE} does not exist; run `waystation agent enrol`"
        )
    try:
        authority = Authority.from_pem(read(directory / AUTHORITY, "certificate of the authority"))
        certificate = authority.read(_der(read(directory / CERTIFICATE, "certificate")))
        key = read_signing_key(read(directory / KEY, "signing key"))
        sealing_keys = [one.key for one in _sealing_keys(directory)]
        sealing_keys.sort(key=lambda one: one.public_key() != certificate.sealing_key)  # the one in use first
        identity = Identity(certificate, key, sealing_keys)
        gateways = _read_gateways(directory, authority)
        return Stored(identity, authority, _read_revocations(directory, authority), gateways)
    except BundleError as error:
        raise IdentityFilesError(f"the identity in {directory} cannot be used: {error}") from error


def prepare_keys(directory: Path) -> tuple[Ed25519PrivateKey, X25519PrivateKey]:
    """The keys for a first certificate; made if there are none, so that an enrolment can be repeated."""
    make_directory(directory)
    try:
        if not (directory / KEY).exists():
            write(directory / KEY, private_pem(Ed25519PrivateKey.generate()))
        if not (directory / SEALING_KEY).exists():
            write(directory / SEALING_KEY, private_pem(X25519PrivateKey.generate()))
        key = read_signing_key(read(directory / KEY, "signing key"))
        return key, read_sealing_key(read(directory / SEALING_KEY, "sealing key"))
    except BundleError as error:
        raise IdentityFilesError(f"the keys in {directory} cannot be used: {error}") from error


def new_sealing_key(directory: Path, certificate: Certificate, now_s: float) -> X25519PrivateKey:
    """A further sealing key, which the next certificate may name; that of an attempt within a day if there was one."""
    newest = _sealing_keys(directory)[0]
    if newest.key.public_key() != certificate.sealing_key and now_s - newest.made_s < _ATTEMPTS_S:
        return newest.key
    key = X25519PrivateKey.generate()
    write(directory / f"sealing-key.{int(now_s)}.pem", private_pem(key))
    return key


def save(
    directory: Path,
    certificate: Certificate,
    authority: Authority,
    gateways: Iterable[Certificate],
    revocations: Revocations,
) -> None:
    """A new certificate and what came with it. The keys must be there. Without `gateways` and with an older list, those
    that are stored stay."""
    make_directory(directory)
    write(directory / AUTHORITY, authority.pem)
    pems = b"".join(_pem(one.der) for one in gateways)
    if pems:
        write(directory / GATEWAYS, pems)
    save_revocations(directory, authority, revocations)
    write(directory / CERTIFICATE, _pem(certificate.der))


def save_revocations(directory: Path, authority: Authority, revocations: Revocations) -> None:
    """A newer revocation list, from wherever it came."""
    try:
        stored = _read_revocations(directory, authority)
    except BundleError:
        stored = NONE  # it is damaged: the new one takes its place
    if revocations.number > stored.number:
        write(directory / REVOCATIONS, revocations.encoded)


def remove_old_sealing_keys(directory: Path, certificate: Certificate, now_s: float) -> bool:
    """Those to which no payload that is still alive can be sealed. Whether there were some."""
    found, has_removed = _sealing_keys(directory), False
    for newer, older in pairwise(found):
        is_used = older.key.public_key() == certificate.sealing_key
        if not is_used and newer.made_s + SEALING_KEY_KEPT_S < now_s:
            older.path.unlink(missing_ok=True)
            has_removed = True
    return has_removed


def _sealing_keys(directory: Path) -> list[_SealingKey]:
    """All, the newest first."""
    found = []
    for path in directory.glob("sealing-key*.pem"):
        made = path.name.removeprefix("sealing-key").removesuffix("pem").strip(".")
        if made.isdecimal() or not made:
            found.append(_SealingKey(int(made or 0), path, read_sealing_key(read(path, "sealing key"))))
    return sorted(found, key=lambda one: one.made_s, reverse=True)


def _read_gateways(directory: Path, authority: Authority) -> list[Certificate]:
    path = directory / GATEWAYS
    if not path.exists():
        return []
    try:
        found = x509.load_pem_x509_certificates(read(path, "gateways' certificates"))
    except ValueError as error:
        raise IdentityFilesError(f"{path} is damaged: {error}; remove it") from error
    return [authority.read(one.public_bytes(Encoding.DER)) for one in found]


def _read_revocations(directory: Path, authority: Authority) -> Revocations:
    path = directory / REVOCATIONS
    return revocation_format.read(read(path, "revocation list"), authority.key) if path.exists() else NONE


def _pem(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


def _der(pem: bytes) -> bytes:
    try:
        return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    except ValueError as error:
        raise IdentityFilesError(f"{CERTIFICATE} is damaged: {error}") from error
