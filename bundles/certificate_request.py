"""Certificate requests: PKCS #10 (RFC 2986) with an Ed25519 key, which show that the sender has the private key (M5).

Only the key counts. Name and roles come from the enrolment token or the certificate that is renewed.
"""

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from bundles.errors import CertificateError

REQUEST_BYTES_MAX: Final = 4_096


def make(key: Ed25519PrivateKey) -> bytes:
    """A request for this key (DER)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waystation")])
    return x509.CertificateSigningRequestBuilder(subject).sign(key, None).public_bytes(Encoding.DER)


def read(der: bytes) -> Ed25519PublicKey:
    """The key in a request that it signed. Raises CertificateError."""
    if len(der) > REQUEST_BYTES_MAX:
        raise CertificateError(f"a certificate request of {len(der)} bytes is larger than {REQUEST_BYTES_MAX}")
    try:
        request = x509.load_der_x509_csr(der)
        key = request.public_key()
        is_signed = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise CertificateError(f"the certificate request is malformed: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise CertificateError("the key of the certificate request is not Ed25519")
    if not is_signed:
        raise CertificateError("the certificate request is not signed by its own key")
    return key
