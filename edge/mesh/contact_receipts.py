"""Receipts at a contact: those that the peer lacks come before offers; those that verify drop a bundle (M8, M12)."""

from bundles import receipt as receipt_format
from bundles.errors import FormatError, SignatureError
from bundles.receipt import RECEIPT_BYTES_MAX
from edge.mesh.carrier import Carrier
from edge.mesh.contact_certificates import CertificateExchange
from edge.mesh.contact_events import Event, ReceiptRefused, ReceiptTaken
from edge.mesh.contact_frames import Receipts
from edge.mesh.contact_link import ContactLink
from edge.mesh.errors import PeerError


class ReceiptExchange:
    """Of one contact. Before receipts the peer gets their signers' certificates."""

    def __init__(self, carrier: Carrier, link: ContactLink, certificates: CertificateExchange) -> None:
        self._carrier, self._link, self._certificates = carrier, link, certificates
        self._sent = 0  # up to this number

    def begin(self) -> None:
        """After the peer's hello: all receipts that it lacks, if only to say that there are none."""
        known, key = self._carrier.receipts, self._link.key
        new = known.after(known.complete_up_to(key), key)
        self._certificates.begin(one.signer for one in new)
        self._send([one.encoded for one in new])
        if not new:
            self._link.send(Receipts((), more=False))

    def refresh(self) -> None:
        """Those that came since."""
        new = self._carrier.receipts.after(self._sent, self._link.key)
        self._certificates.send_of(one.signer for one in new)
        self._send([one.encoded for one in new])

    def took_first(self) -> None:
        """The peer has taken what was sent before its summary."""
        self._carrier.receipts.completed(self._link.key, self._sent)

    def take(self, frame: Receipts, events: list[Event]) -> None:
        """Takes each, or reports why not. Raises PeerError for one that is malformed."""
        for encoded in frame.receipts:
            self._take(encoded, events)

    def _send(self, receipts: list[bytes]) -> None:
        self._sent = self._carrier.receipts.number
        each = max(1, (self._link.room - 1) // (2 + RECEIPT_BYTES_MAX))
        for at in range(0, len(receipts), each):
            self._link.send(Receipts(tuple(receipts[at : at + each]), more=at + each < len(receipts)))

    def _take(self, encoded: bytes, events: list[Event]) -> None:
        try:
            known = self._carrier.receipts.record(receipt_format.peek_id(encoded))
            if known is not None and known.encoded == encoded:
                return
            receipt = receipt_format.decode(encoded)
        except FormatError as error:
            raise PeerError(f"a malformed receipt: {error}") from error
        try:
            if self._carrier.take_receipt(receipt, self._link.key):
                events.append(ReceiptTaken(receipt))
        except SignatureError as error:
            events.append(ReceiptRefused(receipt, str(error)))
