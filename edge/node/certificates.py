"""Certificates and the revocation list, on disk, and what follows when new ones come (M5, M17)."""

from collections.abc import Callable, Iterable

from bundles.certificates import Certificate
from bundles.known_certificates import KnownCertificates
from bundles.revocations import Revocations
from edge.node.errors import LinkRefused
from edge.node.journal import Journal


class Certificates:
    """What is known, `known`, with a journal. `on_certificate` is called when a new certificate is known,
    `on_revocations` when a newer list is in force."""

    def __init__(
        self,
        known: KnownCertificates,
        journal: Journal,
        on_certificate: Callable[[], None],
        on_revocations: Callable[[], None],
    ) -> None:
        self.known, self._journal = known, journal
        self._on_certificate, self._on_revocations = on_certificate, on_revocations

    def recover(self, certificates: Iterable[bytes], revocations: bytes) -> None:
        """What was there at the start. Raises BundleError if the file is not of this authority."""
        for der in certificates:
            self.known.add(der)
        if revocations:
            self.known.take_revocations(revocations)

    def take(self, der: bytes) -> None:
        """Takes a certificate from anywhere. Raises CertificateError if it is not the authority's."""
        found = self.known.add(der)
        if found is not None:
            self.taken(found)

    def taken(self, certificate: Certificate) -> None:
        """`known` has taken a new certificate: writes it down."""
        self._journal.change(urgent=False).certificates.append(certificate)
        self._on_certificate()

    def take_revocations(self, encoded: bytes) -> None:
        """Takes a revocation list from anywhere. Raises FormatError, SignatureError."""
        if self.known.take_revocations(encoded):
            self.revoked(self.known.revocations)

    def revoked(self, revocations: Revocations) -> None:
        """`known` has taken a newer list: writes it down."""
        self._journal.change(urgent=False).revocations = revocations.encoded
        self._on_revocations()

    def peer(self, der: bytes, own_name: str) -> Certificate:
        """The certificate with which a peer has opened a link. Raises CertificateError, LinkRefused."""
        found = self.known.authority.read(der)
        if not self.known.is_trusted(found):
            raise LinkRefused(f"the certificate of {found.name} has expired or is revoked")
        if found.name == own_name:
            raise LinkRefused("the peer has our own name: it is this agent, or another one enrolled with its name")
        self.take(der)
        return found
