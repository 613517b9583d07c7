"""Receipts at a contact: those that the peer lacks come before offers; those that verify drop a bundle (M8, M12).

There may be 100,000, so they are read and encoded a frame at a time, when the link has taken what was before.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from bundles import receipt as receipt_format
from bundles.errors import FormatError, SignatureError
from bundles.receipt import RECEIPT_BYTES_MAX, Role
from edge.mesh.carrier import Carrier
from edge.mesh.contact_certificates import CertificateExchange
from edge.mesh.contact_events import Event, ReceiptRefused, ReceiptTaken
from edge.mesh.contact_frames import Receipts
from edge.mesh.contact_link import ContactLink
from edge.mesh.errors import PeerError

_AT_ONCE = 200


class ReceiptExchange:
    """Of one contact. Before receipts the peer gets their signers' certificates. Read-only: `has_come`, whether the
    peer has sent any."""

    def __init__(self, carrier: Carrier, link: ContactLink, certificates: CertificateExchange) -> None:
        self._carrier, self._link, self._certificates = carrier, link, certificates
        self._sent = 0  # up to this number, or waiting to be written
        self._written = 0  # up to this one
        self._sent_first = 0  # the peer was sent those after this one at this contact
        self.has_come = False

    def begin(self) -> None:
        """After the peer's hello: all receipts that it lacks, if only to say that there are none."""
        known, key = self._carrier.receipts, self._link.key
        after = self._sent_first = known.complete_up_to(key)
        self._certificates.begin(known.signers_after(after, key))
        self._send(after)

    def refresh(self) -> None:
        """Those that came since."""
        if self._sent < self._carrier.receipts.number:
            self._certificates.send_of(self._carrier.receipts.signers_after(self._sent, self._link.key))
            self._send(self._sent)

    def took_first(self) -> None:
        """The peer has what was written before its summary, on its disk."""
        self._carrier.receipts.completed(self._link.key, self._written)

    def repeat(self, held_by_peer: Iterable[str]) -> None:
        """Sends those again that the peer was sent at an earlier contact, and whose bundles it holds all the same: it
        may not have known their signers. At most `_AT_ONCE`: some may have no effect at all."""
        known = self._carrier.receipts
        records = (record for one in held_by_peer if (record := known.record(one)) is not None)
        found = [*islice((one for one in records if one.number <= self._sent_first), _AT_ONCE)]
        if not found:
            return
        for signer in {one.signer: None for one in found}:
            self._certificates.send_again(signer)
        self._link.send_each(self._batches(iter([one.message_id for one in found])))

    def take(self, frame: Receipts, events: list[Event], now: float) -> None:
        """Takes each, or reports why not. Raises PeerError for one that is malformed."""
        self.has_come |= bool(frame.receipts)
        for encoded in frame.receipts:
            self._take(encoded, events, now)

    def _send(self, after: int) -> None:
        self._sent = self._carrier.receipts.number
        self._link.send_each(self._frames(after, self._sent))

    def _frames(self, after: int, last: int) -> Iterator[Receipts]:
        """Of the receipts whose numbers are above `after`, up to `last`; always one without `more`."""
        known = self._carrier.receipts
        for frame in self._batches(one for number, one in known.ids_after(after, self._link.key) if number <= last):
            if not frame.more:
                self._written = last
            yield frame

    def _batches(self, ids: Iterator[str]) -> Iterator[Receipts]:
        each = max(1, min(_AT_ONCE, (self._link.room - 1) // (2 + RECEIPT_BYTES_MAX)))
        found = [*islice(ids, each)]
        while True:
            following = [*islice(ids, each)]
            yield Receipts(tuple(self._carrier.receipts.encoded(found)) if found else (), more=bool(following))
            if not following:
                return
            found = following

    def _take(self, encoded: bytes, events: list[Event], now: float) -> None:
        carrier = self._carrier
        try:
            if carrier.receipts.has(encoded):
                return
            receipt = receipt_format.decode(encoded)
        except FormatError as error:
            raise PeerError(f"a malformed receipt: {error}") from error
        held, unknown = carrier.held(receipt.message_id), carrier.unknown_receipts
        is_unknown = held is None and receipt.role is Role.RECIPIENT
        if is_unknown and not unknown.has_capacity(receipt.signer, now):
            if complaint := unknown.complaint(receipt.signer):
                events.append(ReceiptRefused(receipt, complaint))
            return
        try:
            if carrier.take_receipt(receipt, self._link.key):
                if is_unknown:
                    unknown.taken(receipt.signer)
                is_dropped = receipt.message_id not in carrier
                events.append(ReceiptTaken(receipt, held if is_dropped else None))
        except SignatureError as error:
            events.append(ReceiptRefused(receipt, str(error)))
