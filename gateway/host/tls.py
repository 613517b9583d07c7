"""TLS for the listeners: one context per gateway, whose certificate can change while it listens (G11, R11).

A listener keeps its first context, but each handshake switches to the current one at the client's hello. So new
connections get the certificate and authorities that the files hold now, existing connections stay as they are, and an
invalid certificate or key changes nothing.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from gateway.watched import Watched
from schemas.access_settings import TlsSettings
from schemas.errors import SettingsError

_VERIFY = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_KEYS: Final = ("gateway.tls.certificate", "gateway.tls.key", "gateway.tls.client_ca")
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class ServerTls:
    """`context` is for listeners; `files` must be watched. `keys` are the names of the settings that name the files.
    Raises SettingsError if the files cannot be used."""

    def __init__(self, settings: TlsSettings, keys: tuple[str, ...] = _KEYS) -> None:
        paths = [path for path in (settings.certificate, settings.key, settings.client_ca) if path]
        self.files = Watched(paths, lambda: server_context(settings, keys))
        self.context = self.files.current
        self.context.sni_callback = self._take_present
        self.handshake_timeout_s = settings.handshake_timeout_s

    def _take_present(self, handshake: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: object) -> None:
        """Called in each handshake, whether or not the client names a server."""
        handshake.context = self.files.current


def handshake_of(tls: ServerTls | None) -> tuple[ssl.SSLContext | None, float | None]:
    """A listener's context and the seconds that a handshake may take; both None without TLS."""
    return (None, None) if tls is None else (tls.context, tls.handshake_timeout_s)


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name in the subject of a verified peer certificate, as :meth:`ssl.SSLSocket.getpeercert` gives it;
    None if there is not exactly one."""
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None


def _why(error: ssl.SSLError) -> str:
    """OpenSSL has a word for the reason, or none if it finds no PEM at all."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate; replace both together"
    return error.reason or "a file is not PEM, or is damaged"


def server_context(settings: TlsSettings, keys: tuple[str, ...] = _KEYS) -> ssl.SSLContext:
    """A context from the files of the settings, whose names are `keys`. Raises SettingsError if they cannot be used."""
    certificate_key, key_key, authorities_key = keys

    def no_password() -> str:
        raise SettingsError(f"{settings.key} ({key_key}) is encrypted: use a key without a password")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    files = f"{settings.certificate} ({certificate_key}) and {settings.key} ({key_key})"
    try:
        context.load_cert_chain(settings.certificate, settings.key, no_password)
        if settings.client_certificates != "no":
            files = f"{settings.client_ca} ({authorities_key})"
            context.load_verify_locations(settings.client_ca)
            context.verify_mode = _VERIFY[settings.client_certificates]
            # A resumed session is not verified again: the authorities may have changed meanwhile.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
    except FileNotFoundError as error:
        raise SettingsError(f"cannot read {files}: a file does not exist") from error
    except ssl.SSLError as error:
        raise SettingsError(f"{files} cannot be used: {_why(error)}") from error
    except OSError as error:
        raise SettingsError(f"cannot read {files}: {error.strerror or error}") from error
    return context
