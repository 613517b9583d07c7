"""An authority's directory, as `waystation ca init` makes it, with the authority of the mesh's tests."""

import time
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bundles import certificate_request, enrolment_token
from bundles import revocations as revocation_format
from bundles.certificates import Certificate
from bundles.identity import private_pem
from bundles.receipt import Role
from bundles.revocations import Revocations
from schemas.enrolment import (
    AUTHORITY_FILE,
    AUTHORITY_KEY_FILE,
    ENROLMENTS_PATH,
    GATEWAYS_DIRECTORY,
    REVOCATIONS_FILE,
    EnrolmentRequest,
    RenewalRequest,
)
from schemas.enrolment_settings import EnrolmentSettings
from tests.unit.bundles.keys import AUTHORITY, authority_key, certificate, key, sealing_key


def authority_directory(directory: Path, *gateways: Certificate) -> Path:
    (directory / AUTHORITY_FILE).write_bytes(AUTHORITY.pem)
    (directory / AUTHORITY_KEY_FILE).write_bytes(private_pem(authority_key()))
    (directory / GATEWAYS_DIRECTORY).mkdir()
    for number, one in enumerate(gateways):
        pem = x509.load_der_x509_certificate(one.der).public_bytes(Encoding.PEM)
        (directory / GATEWAYS_DIRECTORY / f"{number}.pem").write_bytes(pem)
    write_revocations(directory, 1, {})
    return directory


def write_revocations(directory: Path, number: int, before_s: dict[str, int]) -> Revocations:
    made = revocation_format.sign(number, 0, before_s, authority_key())
    (directory / REVOCATIONS_FILE).write_bytes(made.encoded)
    return made


def enrolment_settings(directory: Path, **changes: float) -> EnrolmentSettings:
    values = {"certificate_days": 7, "requests_per_s": 0.0, "requests_burst": 20, **changes}
    return EnrolmentSettings(enabled=True, directory=str(directory), **values)  # type: ignore[arg-type]


def request_to(path: str, name: str = "van") -> Any:
    """A body that a gateway with this authority grants now."""
    now_s = int(time.time())
    request = certificate_request.make(key(name))
    sealing = sealing_key(name).public_key().public_bytes_raw()
    if path == ENROLMENTS_PATH:
        token = enrolment_token.sign(name, {Role.RECIPIENT}, now_s, now_s + 600, authority_key())
        return msgspec.to_builtins(EnrolmentRequest(token, request, sealing))
    return msgspec.to_builtins(RenewalRequest(certificate(name, now_s=now_s).der, request, sealing))
