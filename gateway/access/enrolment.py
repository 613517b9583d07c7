"""Enrolment at a gateway: the authority's files, and the certificates that devices get and renew (M5).

The key is read at start. The revocation list and the gateways' certificates are read anew when they change. A list with
a lower number than the one in force is not taken: it would make revoked certificates valid again, and a device that has
a newer one would not take it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bundles import revocations as revocation_format
from bundles.certificates import Authority, Certificate
from bundles.errors import BundleError
from bundles.identity import read_signing_key
from bundles.issuer import Issuer
from bundles.revocations import Revocations
from gateway.watched import Watched
from schemas.enrolment import (
    AUTHORITY_FILE,
    AUTHORITY_KEY_FILE,
    GATEWAYS_DIRECTORY,
    REVOCATIONS_FILE,
    EnrolmentAnswer,
    EnrolmentRequest,
    RenewalRequest,
)
from schemas.enrolment_settings import EnrolmentSettings
from schemas.errors import SettingsError
from schemas.mesh_api import MeshState

_DAY_S: Final = 86_400
_SETTING: Final = "gateway.enrolment.directory"

log = structlog.get_logger(__name__)


class _Passed(NamedTuple):
    """What an answer passes on."""

    revocations: Revocations
    gateways: list[bytes]


class Enrolment:
    """`clock`: seconds since the epoch. Raises SettingsError for files that are missing or damaged."""

    def __init__(self, settings: EnrolmentSettings, clock: Callable[[], float]) -> None:
        self._directory, self._clock = Path(settings.directory), clock
        try:
            self._authority = Authority.from_pem(self._bytes(AUTHORITY_FILE))
            key = read_signing_key(self._bytes(AUTHORITY_KEY_FILE))
            self._issuer = Issuer(self._authority, key, settings.certificate_days * _DAY_S)
        except BundleError as error:
            raise SettingsError(f"{_SETTING} = {settings.directory!r} cannot be used: {error}") from error
        self._newest = revocation_format.NONE
        changing = [str(self._directory / name) for name in (REVOCATIONS_FILE, GATEWAYS_DIRECTORY)]
        self.file = Watched(changing, self._read)
        """To be refreshed now and then."""

    def enrol(self, request: EnrolmentRequest) -> EnrolmentAnswer:
        """A certificate for the name in the token. Raises TokenError, IssueRefused, CertificateError."""
        passed = self.file.current
        certificate = self._issuer.enrol(
            request.token, request.request, request.sealing_key, passed.revocations, self._clock()
        )
        return self._answer("device enrolled", certificate, passed, 0)

    def renew(self, request: RenewalRequest) -> EnrolmentAnswer:
        """A certificate like the present one. Raises IssueRefused, CertificateError."""
        passed = self.file.current
        certificate = self._issuer.renew(
            request.certificate, request.request, request.sealing_key, passed.revocations, self._clock()
        )
        return self._answer("certificate renewed", certificate, passed, request.revocations)

    def _answer(self, event: str, certificate: Certificate, passed: _Passed, number: int) -> EnrolmentAnswer:
        roles = sorted(role.name.lower() for role in certificate.roles)
        log.info(event, client=certificate.name, roles=roles, valid_until_s=certificate.not_after_s)
        is_newer = passed.revocations.number > number
        mesh = MeshState(passed.gateways, passed.revocations.encoded if is_newer else b"")
        authority = self._authority.certificate.public_bytes(Encoding.DER)
        return EnrolmentAnswer(certificate.der, authority, mesh)

    def _read(self) -> _Passed:
        path = self._directory / REVOCATIONS_FILE
        try:
            revocations = revocation_format.read(self._bytes(REVOCATIONS_FILE), self._authority.key)
        except BundleError as error:
            raise SettingsError(f"{path} cannot be used: {error}") from error
        if revocations.number < self._newest.number:
            raise SettingsError(
                f"{path} has list {revocations.number}, older than {self._newest.number}, which is in force: restore "
                "the newest list, or revoke again"
            )
        self._newest = revocations
        files = sorted((self._directory / GATEWAYS_DIRECTORY).glob("*.pem"))
        return _Passed(revocations, [self._gateway(file) for file in files])

    def _gateway(self, path: Path) -> bytes:
        try:
            der = x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)
            return self._authority.read(der).der
        except (OSError, ValueError, BundleError) as error:
            raise SettingsError(f"{path} is not a certificate of the authority: {error}") from error

    def _bytes(self, name: str) -> bytes:
        path = self._directory / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise SettingsError(f"cannot read {path} ({_SETTING}): {error.strerror}") from error
