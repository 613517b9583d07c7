"""Who the platform is in the mesh, and whose certificates it knows: the files of `[gateway.mesh]` (M5, M17).

All gateways share one identity, so agents need not know which of them signs a receipt, and any of them opens what is
sealed to the platform.
"""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bundles import revocations as revocation_format
from bundles.certificates import Authority, Certificate
from bundles.errors import BundleError, CertificateError, FormatError, SignatureError
from bundles.identity import Identity, read_sealing_key, read_signing_key
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Receipt, Role
from gateway.watched import Watched
from schemas.errors import SettingsError
from schemas.mesh_api import CALLERS
from schemas.mesh_settings import MeshSettings

_SEEN_MAX: Final = 10_000
_ON_THE_WAY: Final = 1_000
"""Names beside those on the topic `mesh-certificates`, which bounds them (:mod:`gateway.mesh.certificate_topic`)."""

log = structlog.get_logger(__name__)

R = TypeVar("R")


class Platform:
    """The identity and the certificates of one gateway process. `wall_s` gives seconds since the epoch; `files` must be
    watched: a renewed certificate and a newer revocation list are in force within a second.

    Raises SettingsError, which names the file and the reason, if a file cannot be used.
    """

    def __init__(self, settings: MeshSettings, wall_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._when_renewed: list[Callable[[Certificate], None]] = []
        authority = _read("authority_file", settings.authority_file, Authority.from_pem)
        paths = [settings.certificate_file, settings.key_file, *settings.sealing_key_files]
        self._identity = Watched(paths, lambda: self._read_identity(settings, authority), self._renewed)
        self.files: list[Watched[Any]] = [self._identity]
        self.known = KnownCertificates(authority, wall_s, most=settings.certificates + _ON_THE_WAY, kept=(self.name,))
        self.known.add(self.identity.certificate.der)
        self._seen: OrderedDict[bytes, str] = OrderedDict()
        if settings.revocations_file:
            file = Watched(
                [settings.revocations_file],
                lambda: _read("revocations_file", settings.revocations_file, self._checked_revocations),
                self._revoke,
            )
            self._revoke(file.current)
            self.files.append(file)

    @property
    def identity(self) -> Identity:
        """Certificate and keys, as the files have them."""
        return self._identity.current

    @property
    def name(self) -> str:
        """As who the platform signs receipts, and reports to message presence."""
        return self._identity.current.name

    def receipt(self, message_id: str, delivered_ms: int) -> Receipt:
        """That the platform has stored a message, and when, ms since the epoch."""
        return self.identity.receipt(message_id, Role.GATEWAY, delivered_ms)

    def learn(self, der: bytes) -> Certificate | None:
        """Takes an agent's certificate; None if it brings nothing new. Each is verified once, as long as one of its
        name is known. Raises CertificateError."""
        name = self._seen.get(der)
        if self.known.has(der) or (name is not None and self.known.of(name)):
            if name is not None:
                self._seen.move_to_end(der)
            return None
        self._seen[der] = self.known.authority.read(der).name
        if len(self._seen) > _SEEN_MAX:
            self._seen.popitem(last=False)
        return self.known.add(der)

    def _read_identity(self, settings: MeshSettings, authority: Authority) -> Identity:
        def certificate_of(pem: bytes) -> Certificate:
            try:
                der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
            except ValueError as error:
                raise CertificateError(f"it is no certificate in PEM: {error}") from error
            return authority.read(der)

        certificate = _read("certificate_file", settings.certificate_file, certificate_of)
        key = _read("key_file", settings.key_file, read_signing_key)
        sealing = [_read("sealing_key_files", path, read_sealing_key) for path in settings.sealing_key_files]
        try:
            identity = Identity(certificate, key, sealing)
        except CertificateError as error:
            raise SettingsError(f"gateway.mesh: the files do not belong together: {error}") from error
        where = f"gateway.mesh.certificate_file = {settings.certificate_file!r}"
        if Role.GATEWAY not in certificate.roles:
            raise SettingsError(f"{where}: the certificate of {certificate.name!r} does not have the role of a gateway")
        if certificate.name.startswith(CALLERS):
            raise SettingsError(
                f"{where}: the name {certificate.name!r} begins with {CALLERS!r}, as those of agents over HTTP do: "
                "anybody could report in its name; issue a certificate with another name"
            )
        if self._wall_s() >= certificate.not_after_s:
            raise SettingsError(f"{where}: the certificate has expired; renew it")
        return identity

    def when_renewed(self, call: Callable[[Certificate], None]) -> None:
        """`call` is called with the platform's certificate, now and whenever it is renewed."""
        self._when_renewed.append(call)
        call(self.identity.certificate)

    def is_sealed_to_another(self) -> bool:
        """Whether a payload may be sealed to a key of the platform that only other gateways have yet: their certificate
        is known here."""
        ours = [key.public_key() for key in self.identity.sealing_keys]
        return any(one.sealing_key not in ours for one in self.known.gateways() if one.name == self.name)

    def _renewed(self, identity: Identity) -> None:
        self.known.add(identity.certificate.der)
        for call in self._when_renewed:
            call(identity.certificate)

    def _checked_revocations(self, encoded: bytes) -> bytes:
        revocation_format.read(encoded, self.known.authority.key)
        return encoded

    def _revoke(self, encoded: bytes) -> None:
        before = self.known.revocations.number
        try:
            self.known.take_revocations(encoded)
        except (FormatError, SignatureError) as error:  # checked before
            log.error("revocation list not taken", reason=str(error))
        log.info("revocation list read", number=self.known.revocations.number, before=before)


def _read(key: str, path: str, parse: Callable[[bytes], R]) -> R:
    where = f"gateway.mesh.{key} = {path!r}"
    try:
        return parse(Path(path).read_bytes())
    except OSError as error:
        raise SettingsError(f"{where} cannot be read: {error.strerror}") from error
    except BundleError as error:
        raise SettingsError(f"{where} cannot be used: {error}") from error
