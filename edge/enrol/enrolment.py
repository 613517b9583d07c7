"""How a device gets its certificate, and renews it, from any gateway that has the authority (M5, M17).

The keys are made here and never leave the device: a gateway gets a certificate request, which their owner has signed.
What it answers is checked before anything is stored: the authority must be the one that the token names, or the one
that is stored, and the certificate must have our name and keys. Whatever fails, the files stay as they were, and the
same call may be made again.

How requests get to a gateway is the caller's matter (:data:`Post`); time is passed in.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bundles import certificate_request, enrolment_token
from bundles import revocations as revocation_format
from bundles.certificates import Authority, Certificate
from bundles.errors import BundleError
from bundles.receipt import Role
from bundles.revocations import NONE
from edge.enrol import identity_files
from edge.enrol.errors import EnrolmentRefused, GatewayNotReached, IdentityFilesError
from edge.enrol.identity_files import Stored
from schemas.enrolment import (
    ENROLMENTS_PATH,
    RENEWAL_PATH,
    EnrolmentAnswer,
    EnrolmentRequest,
    RenewalRequest,
)
from schemas.undecodable import UNDECODABLE
from schemas.visible import visible

_TEXT_MAX: Final = 300  # of what a stranger says, in an error
_REFUSED: Final = (400, 403)
"""What a gateway answers that enrols devices, but not this one. Any other status is that of a place that does not: a
gateway without enrolment, an access point, a proxy."""


class HttpAnswer(NamedTuple):
    """Status and body of an HTTP answer."""

    status: int
    body: bytes


Post = Callable[[str, bytes], Awaitable[HttpAnswer]]
"""Posts a JSON body to a path of a gateway. Raises GatewayNotReached. An answer has up to
:data:`schemas.enrolment.ANSWER_BYTES_MAX` bytes."""


async def enrol(directory: Path, token: str, post: Post) -> Stored:
    """Gets the first certificate, and stores the identity in `directory`. Raises IdentityFilesError if there is one
    already, TokenError, EnrolmentRefused or GatewayNotReached."""
    if identity_files.is_enrolled(directory):
        raise IdentityFilesError(
            f"this device is enrolled: {directory} has a certificate, which is renewed by itself. To enrol it again, "
            "with new keys, move that directory away"
        )
    asked = enrolment_token.read(token)
    key, sealing_key = identity_files.prepare_keys(directory)
    request = EnrolmentRequest(token.strip(), certificate_request.make(key), _raw(sealing_key))
    body = _checked(await post(ENROLMENTS_PATH, msgspec.json.encode(request)))
    return _store(directory, body, asked.name, asked.authority, key.public_key(), sealing_key)


def is_due(certificate: Certificate, now_s: float) -> bool:
    """Whether the certificate should be renewed now: half of its lifetime is over."""
    return now_s >= (certificate.not_before_s + certificate.not_after_s) / 2


async def renew(directory: Path, post: Post, now_s: float, *, rotates_sealing_key: bool = False) -> Stored:
    """Renews the certificate, with the same signing key, and stores it; also one that has expired, within
    :data:`bundles.certificates.GRACE_S`. Call it when :func:`is_due`, and again later if it raises GatewayNotReached.
    After EnrolmentRefused the device has to be enrolled again.

    With `rotates_sealing_key` payloads are sealed to a new key from now on; the old one is kept while they may come.
    The answer has the newest revocation list and the gateways' certificates: pass them to KnownCertificates."""
    present = identity_files.load(directory)
    identity, certificate = present.identity, present.identity.certificate
    sealing_key = identity.sealing_keys[0]
    if rotates_sealing_key:
        sealing_key = identity_files.new_sealing_key(directory, certificate, now_s)
    request = RenewalRequest(
        certificate.der,
        certificate_request.make(identity.key),
        _raw(sealing_key),
        present.revocations.number,
    )
    body = _checked(await post(RENEWAL_PATH, msgspec.json.encode(request)))
    authority = present.authority.key.public_bytes_raw()
    stored = _store(directory, body, certificate.name, authority, certificate.key, sealing_key)
    has_removed = identity_files.remove_old_sealing_keys(directory, stored.identity.certificate, now_s)
    return identity_files.load(directory) if has_removed else stored


def _store(
    directory: Path,
    answer: EnrolmentAnswer,
    name: str,
    authority_key: bytes,
    key: Ed25519PublicKey,
    sealing_key: X25519PrivateKey,
) -> Stored:
    try:
        authority = Authority(x509.load_der_x509_certificate(answer.authority))
        if authority.key.public_bytes_raw() != authority_key:
            raise EnrolmentRefused("the gateway has another authority than this device: it is not asked again")
        certificate = authority.read(answer.certificate)
        if certificate.name != name or certificate.key != key or certificate.sealing_key != sealing_key.public_key():
            raise GatewayNotReached("the gateway's answer has a certificate that was not asked for; nothing is stored")
        gateways = [one for one in map(authority.read, answer.mesh.certificates) if Role.GATEWAY in one.roles]
        encoded = answer.mesh.revocations
        revocations = revocation_format.read(encoded, authority.key) if encoded else NONE
    except (BundleError, ValueError) as error:
        raise GatewayNotReached(f"the gateway's answer cannot be used: {error}; nothing is stored") from error
    identity_files.save(directory, certificate, authority, gateways, revocations)
    return identity_files.load(directory)


def _checked(answer: HttpAnswer) -> EnrolmentAnswer:
    if answer.status != 200:
        said = _detail(answer.body) or f"status {answer.status}"
        if answer.status in _REFUSED:
            raise EnrolmentRefused(f"the gateway refuses: {said}")
        raise GatewayNotReached(f"the gateway cannot do it now: {said}")
    try:
        return msgspec.json.decode(answer.body, type=EnrolmentAnswer)
    except UNDECODABLE as error:
        raise GatewayNotReached(f"the answer is not a gateway's: {error}") from error


def _detail(body: bytes) -> str:
    """What a problem (RFC 9457) says, made safe for a terminal."""
    try:
        found = msgspec.json.decode(body, type=dict[str, object])
    except UNDECODABLE:
        return ""
    return visible(str(found.get("detail", ""))[:_TEXT_MAX])


def _raw(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
