"""Certificates and revocation lists at a contact: sent before what needs them, taken if they verify (M5, M17).

**Revocations first.** Hello has the number of each side's list. Who has the higher one sends its list at once, before
receipts and certificates, so that nothing is taken from the revoked.

**Which certificates.** They are numbered as they come (:class:`bundles.known_certificates.KnownCertificates`), and for
each peer the number is remembered up to which it has them all. At the beginning it gets our own; those of the signers
of the receipts that follow; those of gateways; then the others that it lacks, in the order in which they came. Of these
last at most `MeshLimits.certificates` at one contact: the next goes on from there. Before an offer it gets the
originator's. None is sent twice at a contact. What was sent before the peer's summary counts as had: the summary shows
that the peer took it. A peer that declines an offer because it does not know the originator has forgotten it, and gets
its certificates again, and the bundle is offered to it again.

**A certificate or list that does not verify ends the contact.** All have the same authority, by which links are
authenticated too, and times play no part in it: so an honest peer cannot have taken it, and does not send it. A list
must be newer than the one in our hello and than those that the peer has sent. Known certificates cost a look-up; of
others `MeshLimits.certificates_taken` are looked at in one contact, and further ones are ignored: they are not a fault,
as a peer may have more, but checking each costs time.
"""

from collections.abc import Iterable

from bundles import revocations as revocation_format
from bundles.errors import CertificateError, FormatError, SignatureError
from bundles.receipt import Role
from bundles.revocations import ENCODED_BYTES_MAX
from edge.mesh.carrier import Carrier
from edge.mesh.contact_events import CertificateTaken, Event, RevocationsTaken
from edge.mesh.contact_frames import Certificates, Revocations
from edge.mesh.contact_link import ContactLink
from edge.mesh.errors import PeerError


class CertificateExchange:
    """Of one contact. Without certificates in the carrier nothing is sent, and what comes is ignored."""

    def __init__(self, carrier: Carrier, link: ContactLink) -> None:
        self._carrier, self._link = carrier, link
        self._sent: set[bytes] = set()
        self._sent_of: set[str] = set()  # names
        self._had_up_to = 0  # by the peer, when the contact began
        self._passed_up_to = 0
        self._looked_up_to = 0
        self._may_pass = link.limits.certificates
        self._looked_at = 0
        self._list_sent = 0
        self._list_taken = carrier.revocations  # the highest number that the peer must exceed
        self._list = bytearray()

    # -- out -----------------------------------------------------------------------------------------------------------

    def begin(self, signers: Iterable[str]) -> None:
        """After the peer's hello: our list if it is newer, and certificates, before receipts by these `signers`."""
        self._list_sent = self._link.peer.revocations
        self._send_list()
        self._had_up_to = self._passed_up_to = self._carrier.certificates_known.complete_up_to(self._link.key)
        self.send_of([self._carrier.name, *signers])
        self._pass_on()

    def refresh(self) -> None:
        """What came since: our revocation list, and certificates."""
        self._send_list()
        self._pass_on()

    def send_of(self, names: Iterable[str]) -> None:
        """The certificates of these originators or signers, unless the peer has them."""
        known = self._carrier.certificates
        if known is None:
            return
        new = [name for name in dict.fromkeys(names) if name not in self._sent_of]
        self._sent_of.update(new)
        peer = self._link.key
        self._send(one.certificate.der for name in new for one in known.numbered(name, self._had_up_to, peer))

    def send_again(self, name: str) -> None:
        """The certificates of an originator that the peer has forgotten."""
        known = self._carrier.certificates
        if known is not None:
            self._send(one.der for one in known.of(name))

    def took_first(self) -> None:
        """The peer has taken what was sent before its summary."""
        self._carrier.certificates_known.completed(self._link.key, self._passed_up_to)

    def _send_list(self) -> None:
        """Our revocation list if it is newer than what the peer has, in parts."""
        known = self._carrier.certificates
        if known is None or known.revocations.number <= self._list_sent:
            return
        self._list_sent = known.revocations.number
        encoded, each = known.revocations.encoded, self._link.room - 1
        for at in range(0, len(encoded), each):
            self._link.send(Revocations(encoded[at : at + each], more=at + each < len(encoded)))

    def _pass_on(self) -> None:
        """The next certificates that the peer lacks, as long as the limit allows."""
        known = self._carrier.certificates
        if known is None or known.number == self._looked_up_to:
            return
        self._looked_up_to = known.number
        lacking = known.after(self._passed_up_to, self._link.key)
        self._send(one.certificate.der for one in lacking if Role.GATEWAY in one.certificate.roles)
        others = [one for one in lacking if one.certificate.der not in self._sent]
        chosen = others[: self._may_pass]
        self._may_pass -= len(chosen)
        self._send(one.certificate.der for one in chosen)
        is_all = len(chosen) == len(others)
        self._passed_up_to = known.number if is_all else others[len(chosen)].number - 1

    def _send(self, certificates: Iterable[bytes]) -> None:
        batch: list[bytes] = []
        size, room = 0, self._link.room
        for der in certificates:
            if der in self._sent or 2 + len(der) > room:
                continue
            self._sent.add(der)
            if size + 2 + len(der) > room:
                self._link.send(Certificates(tuple(batch)))
                batch, size = [], 0
            batch.append(der)
            size += 2 + len(der)
        if batch:
            self._link.send(Certificates(tuple(batch)))

    # -- in ------------------------------------------------------------------------------------------------------------

    def take(self, frame: Certificates, events: list[Event]) -> None:
        """Keeps those that are new. Raises PeerError for one that is not the authority's."""
        known = self._carrier.certificates
        if known is None:
            return
        for der in frame.certificates:
            if not known.has(der):
                self._looked_at += 1
            if self._looked_at > self._link.limits.certificates_taken:
                return
            try:
                taken = self._carrier.take_certificate(der, self._link.key)
            except CertificateError as error:
                raise PeerError(f"{error}; a peer must not pass on what it cannot have verified") from error
            if taken is not None:
                events.append(CertificateTaken(taken))

    def take_list(self, frame: Revocations, events: list[Event]) -> None:
        """Goes by a list once its last part came. Raises PeerError for one that is forged, too long or not newer."""
        if self._carrier.certificates is None:
            return
        self._list += frame.part
        if len(self._list) > ENCODED_BYTES_MAX:
            raise PeerError(f"a revocation list of more than {ENCODED_BYTES_MAX} bytes")
        if frame.more:
            return
        encoded = bytes(self._list)
        self._list.clear()
        try:
            number = revocation_format.peek_number(encoded)
            if number <= self._list_taken:
                raise PeerError(f"revocation list {number} is not newer than {self._list_taken}, which it knew of")
            is_newer = self._carrier.take_revocations(encoded)  # another contact may have brought it meanwhile
        except (FormatError, SignatureError) as error:
            raise PeerError(f"a revocation list that does not verify: {error}") from error
        self._list_taken = number
        self._list_sent = max(self._list_sent, number)
        if is_newer:
            events.append(RevocationsTaken(self._carrier.certificates.revocations))
