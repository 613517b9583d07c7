"""TLS between gateways: each proves to the other who it is (G14, R11).

A member's certificate is signed by the authority in `gateway.cluster.members_ca`. The common name in its subject is the
gateway's name, and its extended key usage has server and client authentication. The authority may sign certificates of
clients too: those have client authentication only, so no client is taken for a gateway, whatever its name.

The files are read again when they change; connections that are open stay as they are.
"""

import ssl
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.host.tls import ServerTls
from gateway.watched import Watched
from schemas.errors import SettingsError
from schemas.settings import GatewaySettings

_KEYS: Final = tuple(f"gateway.cluster.members_{name}" for name in ("certificate", "key", "ca"))
_USAGES: Final = frozenset({ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH})


class MemberTls:
    """`server` is for the listener, `client` for connections to other members; `files` must be watched. Raises
    SettingsError if the files cannot be used, or are not those of this gateway."""

    def __init__(self, settings: GatewaySettings) -> None:
        certificate, key, authority = settings.cluster.members_files
        tls = msgspec.structs.replace(
            settings.tls,
            certificate=certificate,
            key=key,
            client_ca=authority,
            client_certificates="required",
            minimum_version="1.3",
        )
        self.server = ServerTls(tls, _KEYS)
        _check_name(certificate, settings.name)
        self._client = Watched([certificate, key, authority], lambda: _client_context(certificate, key, authority))
        self.files: list[Watched[Any]] = [self.server.files, self._client]

    @property
    def client(self) -> ssl.SSLContext:
        """The context for a new connection. It verifies the authority; who the other one is remains to be checked."""
        return self._client.current


def open_member_tls(settings: GatewaySettings) -> MemberTls | None:
    """None if gateways speak to each other without TLS, or not at all. Raises SettingsError."""
    cluster = settings.cluster
    return MemberTls(settings) if cluster.enabled and all(cluster.members_files) else None


def member_name(certificate: bytes | None) -> str | None:
    """The gateway whose verified certificate this is (DER); None if it is no gateway's."""
    if certificate is None:
        return None
    try:
        return _name_of(x509.load_der_x509_certificate(certificate))
    except ValueError:
        return None


def _name_of(certificate: x509.Certificate) -> str | None:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension):
        return None
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if set(usage) >= _USAGES and len(names) == 1 else None


def _check_name(path: str, name: str) -> None:
    found = _name_of(x509.load_pem_x509_certificate(Path(path).read_bytes()))
    if found != name:
        raise SettingsError(
            f"{path} ({_KEYS[0]}) is not a certificate of this gateway: its common name must be gateway.name = "
            f"{name!r}, and its extended key usage must have server and client authentication"
        )


def _client_context(certificate: str, key: str, authority: str) -> ssl.SSLContext:
    """Raises OSError and ssl.SSLError for files that have just become unusable: the server's context has used them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the common name is the gateway's, not its address's
    context.load_verify_locations(authority)
    context.load_cert_chain(certificate, key)
    return context
