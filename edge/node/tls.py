"""TLS 1.3 with both ends authenticated by certificates of the mesh's authority (M5).

OpenSSL checks that the authority issued the peer's certificate and that it has not expired. Names, revocation and the
authority's further rules: :mod:`edge.node.certificates`. Host names play no part: an agent is its certificate's name,
wherever it is.
"""

import os
import ssl
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_der_x509_certificate

from bundles.certificates import Authority
from bundles.identity import Identity, private_pem
from edge.client.errors import StoreError
from edge.node.errors import LinkRefused


class LinkTls:
    """The contexts of both sides. `directory`: where the key is for a moment, in a file that only the owner may read:
    OpenSSL's module takes keys from files only."""

    def __init__(self, authority: Authority, directory: Path) -> None:
        self._authority, self._directory = authority, directory

    def use(self, identity: Identity) -> None:
        """New links are opened with this identity. Raises StoreError if its file cannot be written."""
        self.server = self._context(identity, ssl.PROTOCOL_TLS_SERVER)
        self.client = self._context(identity, ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, identity: Identity, side: int) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=self._authority.pem.decode())
        if side == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0
        certificate = load_der_x509_certificate(identity.certificate.der)
        pem = private_pem(identity.key) + certificate.public_bytes(Encoding.PEM)
        try:
            descriptor, name = tempfile.mkstemp(".pem", "link-", self._directory)  # mode 0600
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(pem)
                context.load_cert_chain(name)
            finally:
                os.unlink(name)
        except OSError as error:
            raise StoreError(f"the key for links cannot be written to {self._directory}: {error}") from error
        return context


def peer_certificate(transport: object) -> bytes:
    """The peer's certificate (DER). Raises LinkRefused if the link is not TLS."""
    get_extra_info = getattr(transport, "get_extra_info", lambda _: None)
    tls = get_extra_info("ssl_object")
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    if not der:
        raise LinkRefused("the peer has no certificate")
    return bytes(der)
