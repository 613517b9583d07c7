"""Certificates of agents and gateways: X.509 (RFC 5280), Ed25519 (RFC 8410), issued by the mesh's authority (M5, M17).

One certificate is all that others need to know of a name: the key that signs its bundles and receipts and
authenticates its links (TLS 1.3), and, in an extension, the key that payloads to it are sealed to and the roles in
which it may sign receipts. So a device that is enrolled can be talked to by all that have its certificate, which
contacts pass on.

The name is a URI in the subject's alternative names, `urn:waystation:` and the percent-encoded client id: a common name
holds 64 characters only, and client ids may be longer.

A certificate lives a few days and is renewed with the same keys. An expired one opens no link, but signatures made with
it remain valid for `GRACE_S`, as long as a bundle may live: its owner may have been away for as long.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bundles.errors import CertificateError
from bundles.receipt import Role
from bundles.wire import NAME_BYTES_MAX

LIFETIME_S: Final = 7 * 86_400
GRACE_S: Final = 30 * 86_400
CERTIFICATE_BYTES_MAX: Final = 4_096
BACKDATED_S: Final = 300
"""A new certificate is valid from a little earlier, for devices whose clocks are behind."""
_URN: Final = "urn:waystation:"
_SEALING_KEY_BYTES: Final = 32
_TRIAL_KEY: Final = X25519PrivateKey.generate()
_EXTENSION: Final = x509.ObjectIdentifier("2.25.37762308287319576556580354465989848949")
"""Of a UUID (ITU-T X.667), which needs no registration. Value: a byte with a bit for each role, and the sealing key."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a verified certificate says. Times are seconds since the epoch."""

    name: str
    roles: frozenset[Role]
    key: Ed25519PublicKey
    sealing_key: X25519PublicKey
    not_before_s: int
    not_after_s: int
    der: bytes

    def is_valid(self, now_s: float) -> bool:
        """Whether a link may be opened with it."""
        return self.not_before_s <= now_s < self.not_after_s

    def may_have_signed(self, now_s: float) -> bool:
        """Whether what it has signed counts. It may not be valid yet: clocks of devices differ."""
        return now_s < self.not_after_s + GRACE_S


_NOT_OURS: Final = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)
"""What the library raises for bytes that are no certificate, or another kind of certificate."""


class Authority:
    """The certificate of the authority, by which all others are verified."""

    def __init__(self, certificate: x509.Certificate) -> None:
        key = certificate.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise CertificateError("the authority's key is not Ed25519")
        self.certificate, self.key = certificate, key

    @classmethod
    def from_pem(cls, pem: bytes) -> "Authority":
        """Raises CertificateError."""
        try:
            return cls(x509.load_pem_x509_certificate(pem))
        except ValueError as error:
            raise CertificateError(f"the authority's certificate cannot be read: {error}") from error

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def read(self, der: bytes) -> Certificate:
        """What a certificate says, if this authority issued it; its times are not looked at. Raises
        CertificateError."""
        if len(der) > CERTIFICATE_BYTES_MAX:
            raise CertificateError(f"a certificate of {len(der)} bytes is larger than {CERTIFICATE_BYTES_MAX}")
        try:
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(self.certificate)
            return _read(certificate)
        except InvalidSignature as error:
            raise CertificateError("a certificate is not signed by the authority") from error
        except _NOT_OURS as error:
            raise CertificateError(f"a certificate is not one of the mesh: {error}") from error


def new_authority(name: str, key: Ed25519PrivateKey, now_s: float, lifetime_s: int) -> Authority:
    """A new authority, whose certificate it signs itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = (
        _builder(subject, subject, public, now_s, lifetime_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
    )
    return Authority(builder.sign(key, None))


def issue(
    authority: Authority,
    authority_key: Ed25519PrivateKey,
    name: str,
    key: Ed25519PublicKey,
    sealing_key: X25519PublicKey,
    roles: Iterable[Role],
    now_s: float,
    lifetime_s: int = LIFETIME_S,
    *,
    not_before_s: float = 0,
) -> Certificate:
    """A new certificate, valid from a little before `now_s`, but not before `not_before_s`. Raises CertificateError for
    a name that does not fit."""
    if not name or "\0" in name or len(name.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
        raise CertificateError(f"a name must have 1 to {NAME_BYTES_MAX} bytes, and no U+0000")
    try:
        uri = _URN + quote(name, safe="")
    except UnicodeEncodeError as error:
        raise CertificateError("the name contains surrogates") from error
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waystation")])
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    bits = sum(1 << role for role in set(roles))
    ours = x509.UnrecognizedExtension(_EXTENSION, bytes([bits]) + sealing_key.public_bytes_raw())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key)
    builder = (
        _builder(subject, authority.certificate.subject, key, now_s, lifetime_s, not_before_s)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(ours, critical=False)
    )
    return authority.read(builder.sign(authority_key, None).public_bytes(Encoding.DER))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: Ed25519PublicKey,
    now_s: float,
    lifetime_s: int,
    not_before_s: float = 0,
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(int(now_s), UTC)
    begin = datetime.fromtimestamp(int(max(now_s - BACKDATED_S, not_before_s)), UTC)
    return x509.CertificateBuilder(
        issuer,
        subject,
        key,
        x509.random_serial_number(),
        begin,
        now + timedelta(seconds=lifetime_s),
    )


def _usage(**wanted: bool) -> x509.KeyUsage:
    names = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
        *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in names})


def sealing_key_of(raw: bytes) -> X25519PublicKey:
    """The key to which bundles are sealed. Raises CertificateError for what is no X25519 key, or one of low order:
    sealing to it fails (RFC 7748, 6.1)."""
    try:
        key = X25519PublicKey.from_public_bytes(raw)
        _TRIAL_KEY.exchange(key)
    except ValueError as error:
        raise CertificateError(f"the sealing key is not a usable X25519 key of {_SEALING_KEY_BYTES} bytes") from error
    return key


def _read(certificate: x509.Certificate) -> Certificate:
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise CertificateError("its key is not Ed25519")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1 or not uris[0].startswith(_URN):
        raise CertificateError("it does not have exactly one name of ours")
    ours = certificate.extensions.get_extension_for_oid(_EXTENSION).value
    value = ours.value if isinstance(ours, x509.UnrecognizedExtension) else b""
    if len(value) != 1 + _SEALING_KEY_BYTES:
        raise CertificateError("its extension has the wrong size")
    return Certificate(
        unquote(uris[0][len(_URN) :], errors="strict"),
        frozenset(role for role in Role if value[0] >> role & 1),
        key,
        sealing_key_of(value[1:]),
        int(certificate.not_valid_before_utc.timestamp()),
        int(certificate.not_valid_after_utc.timestamp()),
        certificate.public_bytes(Encoding.DER),
    )
