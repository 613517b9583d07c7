"""Who an agent or gateway is: its name, its private keys and its certificate (M5, M17)."""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from bundles import bundle as bundle_format
from bundles import receipt as receipt_format
from bundles import sealing
from bundles.bundle import Bundle, Header
from bundles.certificates import Certificate
from bundles.errors import CertificateError
from bundles.receipt import Receipt, Role


@dataclass(frozen=True, slots=True)
class Identity:
    """`sealing_keys`: the newest first; older ones are kept as long as a bundle sealed to them may live."""

    certificate: Certificate
    key: Ed25519PrivateKey
    sealing_keys: Sequence[X25519PrivateKey]

    def __post_init__(self) -> None:
        """Raises CertificateError if the keys are not those of the certificate."""
        if self.key.public_key() != self.certificate.key:
            raise CertificateError(f"the key is not that of the certificate of {self.name}")
        if not self.sealing_keys or self.sealing_keys[0].public_key() != self.certificate.sealing_key:
            raise CertificateError(f"the sealing key is not that of the certificate of {self.name}")

    @property
    def name(self) -> str:
        """The client id."""
        return self.certificate.name

    def bundle(self, header: Header, ciphertext: bytes) -> Bundle:
        """A new bundle of ours. Raises FormatError."""
        return bundle_format.sign(header, ciphertext, self.key)

    def receipt(self, message_id: str, role: Role, delivered_ms: int) -> Receipt:
        """A receipt of ours. Raises FormatError."""
        return receipt_format.sign(message_id, role, self.name, delivered_ms, self.key)

    def unseal(self, bundle: Bundle) -> bytes:
        """The payload of a bundle to us. Raises SealError."""
        return sealing.unseal(bundle.header, bundle.ciphertext, self.sealing_keys, bundle.encoded_header)


def private_pem(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """A private key as it is kept in a file that only its owner may read: PKCS #8, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_signing_key(pem: bytes) -> Ed25519PrivateKey:
    """Raises CertificateError."""
    key = _read_key(pem)
    if not isinstance(key, Ed25519PrivateKey):
        raise CertificateError("the signing key is not Ed25519")
    return key


def read_sealing_key(pem: bytes) -> X25519PrivateKey:
    """Raises CertificateError."""
    key = _read_key(pem)
    if not isinstance(key, X25519PrivateKey):
        raise CertificateError("the sealing key is not X25519")
    return key


def _read_key(pem: bytes) -> object:
    try:
        return load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise CertificateError("a private key cannot be read: it must be PEM without a passphrase") from error
