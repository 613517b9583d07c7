"""The receipts that a carrier has, and which of them each peer still lacks.

They are numbered as they come. For each peer the number is remembered up to which it has them all, so at each contact
only the new ones are sent. A peer whose store was lost has another incarnation, and gets all again.

There are as many as bundles were delivered, up to 100,000, so each is kept as the bytes that are sent.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from bundles import receipt as receipt_format
from bundles.bundle import Header
from bundles.receipt import Receipt, Role
from bundles.wire import write_id
from edge.mesh.known_to_peers import OURS, KnownToPeers, Peer

__all__ = ["OURS", "KnownReceipt", "KnownReceipts", "Peer"]

_FORGOTTEN_SHARE: Final = 50
"""Of many receipts a fiftieth is forgotten at once: to look for the oldest one each time would take long."""


class KnownReceipt(msgspec.Struct, gc=False, frozen=True):
    """A verified receipt and where it came from."""

    encoded: bytes
    role: Role
    signer: str
    source: Peer
    number: int = 0

    @classmethod
    def of(cls, receipt: Receipt, source: Peer, number: int = 0) -> "KnownReceipt":
        """The record of a receipt."""
        return cls(receipt.encoded, receipt.role, sys.intern(receipt.signer), source, number)

    def settles(self, header: Header) -> bool:
        """As :meth:`bundles.receipt.Receipt.settles`."""
        return receipt_format.settles(self.role, self.signer, header)


class KnownReceipts:
    """At most `most` receipts and `peers_max` peers; the oldest are forgotten first. To forget a receipt early costs
    transmissions, and may cost a second delivery to a gateway; the recipient's memory removes it."""

    def __init__(self, most: int, peers_max: int) -> None:
        self._most = most
        self._known: dict[bytes, KnownReceipt] = {}  # in the order of their numbers
        self._complete = KnownToPeers(peers_max)
        self.number = 0
        """Of the latest receipt; 0 if there was none."""

    def __len__(self) -> int:
        return len(self._known)

    def record(self, message_id: str) -> KnownReceipt | None:
        """What is known of the receipt for a message."""
        return self._known.get(write_id(message_id)) if self._known else None

    def get(self, message_id: str) -> Receipt | None:
        """The receipt for a message."""
        known = self.record(message_id)
        return None if known is None else receipt_format.decode(known.encoded)

    def add(self, receipt: Receipt, source: Peer) -> bool:
        """Keeps a verified receipt, in place of another for the message if there is one; False if it is known."""
        known = self.record(receipt.message_id)
        if known is not None and known.encoded == receipt.encoded:
            return False
        self._keep(write_id(receipt.message_id), KnownReceipt.of(receipt, source, self.number + 1))
        return True

    def recovered(self, raw: bytes, known: KnownReceipt) -> None:
        """Keeps one that was stored; `raw`: the message's id."""
        self._keep(raw, msgspec.structs.replace(known, number=self.number + 1))

    def after(self, number: int, peer: Peer) -> list[KnownReceipt]:
        """Those later than `number`, without what the peer itself has sent."""
        return [known for known in self._latest_first(number) if known.source != peer][::-1]

    def complete_up_to(self, peer: Peer) -> int:
        """The number up to which the peer has all of them."""
        return self._complete.complete_up_to(peer)

    def completed(self, peer: Peer, number: int) -> None:
        """The peer has them all up to `number`."""
        self._complete.completed(peer, number)

    def _keep(self, raw: bytes, known: KnownReceipt) -> None:
        self.number = known.number
        self._known.pop(raw, None)
        self._known[raw] = known
        if len(self._known) > self._most:
            for oldest in list(islice(self._known, max(1, self._most // _FORGOTTEN_SHARE))):
                del self._known[oldest]

    def _latest_first(self, number: int) -> Iterator[KnownReceipt]:
        for known in reversed(self._known.values()):
            if known.number <= number:
                return
            yield known
