"""Certificates for MQTT over QUIC: the same files as for the other TLS listeners, in the form that aioquic takes, and
reread when they change (G11, R11). aioquic has its own TLS 1.3 (RFC 9001), so that it cannot use an `SSLContext`."""

from pathlib import Path
from typing import NamedTuple

from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import Alert, AlertDescription, verify_certificate
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.host.tls import server_context
from gateway.watched import Watched
from mqtt.quic_connection import Certificates
from mqtt.quic_stream import configuration, crypto_error
from schemas.access_settings import TlsSettings
from schemas.errors import SettingsError
from schemas.settings import GatewayLimits


class ClientCertificateError(Exception):
    """A client's certificate is missing or cannot be accepted; `code` is QUIC's error code for the client."""

    def __init__(self, alert: AlertDescription, reason: str) -> None:
        super().__init__(reason)
        self.code = crypto_error(alert)


class QuicCredentials(NamedTuple):
    """What the files hold: the settings of new connections, and which client certificates are accepted."""

    configuration: QuicConfiguration
    asks: bool
    requires: bool
    authorities: bytes

    def user(self, shown: Certificates | None) -> str | None:
        """The common name in a client's certificate, None if it shows none or the name is not unique. Raises
        ClientCertificateError for a certificate that no accepted authority has issued for clients, that is not valid
        now, or that is missing but required."""
        if not self.asks:
            return None
        if shown is None:
            if self.requires:
                raise ClientCertificateError(AlertDescription.certificate_required, "the client has no certificate")
            return None
        certificate, chain = shown
        try:
            verify_certificate(certificate, chain, cadata=self.authorities)
        except Alert as error:
            raise ClientCertificateError(error.description, str(error)) from error
        if not _is_for_clients(certificate):
            raise ClientCertificateError(AlertDescription.bad_certificate, "the certificate is not for TLS clients")
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(names[0].value) if len(names) == 1 else None


class QuicTls:
    """`files` must be watched; `files.current` is for new connections. Raises SettingsError if the files cannot be
    used."""

    def __init__(self, settings: TlsSettings, limits: GatewayLimits) -> None:
        paths = [path for path in (settings.certificate, settings.key, settings.client_ca) if path]
        self.files = Watched(paths, lambda: _read(settings, limits))
        self.handshake_timeout_s = settings.handshake_timeout_s


def _read(settings: TlsSettings, limits: GatewayLimits) -> QuicCredentials:
    server_context(settings)  # says what is wrong with the files, if anything is
    connection = configuration(
        is_client=False, window=limits.quic_window_bytes, idle_timeout_s=limits.quic_idle_timeout_s
    )
    certificates = x509.load_pem_x509_certificates(Path(settings.certificate).read_bytes())
    connection.certificate, connection.certificate_chain = certificates[0], certificates[1:]
    connection.private_key = load_pem_private_key(Path(settings.key).read_bytes(), None)
    if not _can_sign(connection.private_key):
        raise SettingsError(
            f"{settings.key} (gateway.tls.key) cannot be used for QUIC: allowed are RSA, ECDSA with P-256 or P-384, "
            'Ed25519 and Ed448; use such a key, or set gateway.tls.quic_port = "off"'
        )
    asks = settings.client_certificates != "no"
    authorities = Path(settings.client_ca).read_bytes() if asks else b""
    return QuicCredentials(connection, asks, settings.client_certificates == "required", authorities)


def _can_sign(key: object) -> bool:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1)
    return isinstance(key, rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)


def _is_for_clients(certificate: x509.Certificate) -> bool:
    """Whether its purposes, if it names any, include TLS clients (RFC 5280, 4.2.1.12)."""
    try:
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except ValueError:  # extensions that cannot be parsed
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in purposes or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in purposes
