"""The receipts that a carrier has, and which of them each peer still lacks.

They are numbered as they come. For each peer the number is remembered up to which it has them all, so at each contact
only the new ones are sent. A peer whose store was lost has another incarnation, and gets all again.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from bundles.receipt import Receipt
from edge.mesh.known_to_peers import OURS, KnownToPeers, Peer

__all__ = ["OURS", "KnownReceipts", "Peer"]


class _Known(NamedTuple):
    number: int
    receipt: Receipt
    source: Peer


class KnownReceipts:
    """At most `most` receipts and `peers_max` peers; the oldest are forgotten first. To forget a receipt early costs
    transmissions, and may cost a second delivery to a gateway; the recipient's memory removes it."""

    def __init__(self, most: int, peers_max: int) -> None:
        self._most = most
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._complete = KnownToPeers(peers_max)
        self.number = 0
        """Of the latest receipt; 0 if there was none."""

    def __len__(self) -> int:
        return len(self._known)

    def get(self, message_id: str) -> Receipt | None:
        """The receipt for a message."""
        known = self._known.get(message_id)
        return None if known is None else known.receipt

    def add(self, receipt: Receipt, source: Peer) -> bool:
        """Keeps a verified receipt, in place of another for the message if there is one; False if it is known."""
        if self.get(receipt.message_id) == receipt:
            return False
        self.number += 1
        self._known.pop(receipt.message_id, None)
        self._known[receipt.message_id] = _Known(self.number, receipt, source)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return True

    def after(self, number: int, peer: Peer) -> list[Receipt]:
        """Those later than `number`, without what the peer itself has sent."""
        return [known.receipt for known in self._latest_first(number) if known.source != peer][::-1]

    def numbered(self, number: int, most: int) -> list[tuple[int, Receipt]]:
        """The oldest ones later than `number`, at most `most`, with their numbers."""
        return [(known.number, known.receipt) for known in self._latest_first(number)][: -most - 1 : -1]

    def complete_up_to(self, peer: Peer) -> int:
        """The number up to which the peer has all of them."""
        return self._complete.complete_up_to(peer)

    def completed(self, peer: Peer, number: int) -> None:
        """The peer has them all up to `number`."""
        self._complete.completed(peer, number)

    def _latest_first(self, number: int) -> Iterator[_Known]:
        for known in reversed(self._known.values()):
            if known.number <= number:
                return
            yield known
