"""Up to which number each peer has all of what is numbered here: receipts, or certificates."""

from collections import OrderedDict
from typing import Final

Peer = tuple[str, int]
"""Name and incarnation."""

OURS: Final[Peer] = ("", 0)
"""Where something came from that no peer has sent: our own, or from a gateway."""


class KnownToPeers:
    """At most `peers_max` peers; the oldest are forgotten first, and then sent all again. Of a name only the latest
    incarnation counts: a peer chooses its own, and takes the place of nobody else by that."""

    def __init__(self, peers_max: int) -> None:
        self._peers_max = peers_max
        self._complete: OrderedDict[str, tuple[int, int]] = OrderedDict()  # incarnation, number

    def complete_up_to(self, peer: Peer) -> int:
        """The number up to which the peer has all of them."""
        name, incarnation = peer
        latest, number = self._complete.get(name, (incarnation, 0))
        return number if latest == incarnation else 0

    def completed(self, peer: Peer, number: int) -> None:
        """The peer has them all up to `number`."""
        name, incarnation = peer
        self._complete[name] = incarnation, max(number, self.complete_up_to(peer))
        self._complete.move_to_end(name)
        if len(self._complete) > self._peers_max:
            self._complete.popitem(last=False)
