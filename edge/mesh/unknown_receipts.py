"""How many receipts for messages that are not here one recipient may make this agent keep and pass on (M8).

Every agent may sign as a recipient, and whether it is the recipient of a message only those can check who hold it. To
name the message's header in the receipt would prove nothing: an agent may write to itself without end. So the number
is bounded, for each signer, whoever brings them. What is ignored is not lost for those who need it: a peer repeats a
receipt if this agent holds the message later (:meth:`edge.mesh.contact_receipts.ReceiptExchange.repeat`).
"""

from collections import Counter
from typing import Final

PERIOD_S: Final = 3_600.0


class UnknownReceipts:
    """At most `most` of a signer in an hour. Only signers that have a certificate are counted, so they are bounded."""

    def __init__(self, most: int) -> None:
        self._most, self._began_s = most, 0.0
        self._taken: Counter[str] = Counter()
        self._complained: set[str] = set()

    def has_capacity(self, signer: str, now: float) -> bool:
        """Whether another one of the signer may be taken."""
        if now - self._began_s >= PERIOD_S:
            self._began_s = now
            self._taken.clear()
            self._complained.clear()
        return self._taken.get(signer, 0) < self._most

    def taken(self, signer: str) -> None:
        """One was taken: its signature is the signer's."""
        self._taken[signer] += 1

    def complaint(self, signer: str) -> str:
        """For the first one in an hour that is ignored, why it is; else nothing."""
        if signer in self._complained:
            return ""
        self._complained.add(signer)
        return f"{signer} has signed more than {self._most:,} in an hour for messages that are not here: ignored"
