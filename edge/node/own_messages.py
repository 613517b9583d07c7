"""Which messages of this agent are alive, and so the low-water mark of a new one; without I/O.

A recipient refuses what is below the mark of the originator that it has seen (:mod:`bundles.seen`). One recipient may
have several destinations: the platform has all topics. So the mark of a message is the lowest sequence of all that are
alive to the same recipient, `None` being the platform.
"""

from collections import OrderedDict

from bundles.bundle import Header
from bundles.receipt import Receipt, Role


class OwnMessages:
    """Those that are accepted and have neither been delivered nor expired."""

    def __init__(self) -> None:
        self._of_recipient: dict[str | None, OrderedDict[int, None]] = {}  # in order of sequence
        self._by_id: dict[str, tuple[str | None, int]] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, header: Header, message_id: str) -> None:
        """A new message, and its id. Sequences ascend."""
        self._of_recipient.setdefault(header.recipient, OrderedDict())[header.sequence] = None
        self._by_id[message_id] = header.recipient, header.sequence

    def is_settled_by(self, receipt: Receipt) -> bool:
        """Whether it is a message of ours that is alive, and the receipt's signer may say that it was delivered."""
        found = self._by_id.get(receipt.message_id)
        return found is not None and (receipt.role is not Role.RECIPIENT or receipt.signer == found[0])

    def end(self, message_id: str) -> bool:
        """It has ended; False if it is not one of ours that is alive."""
        found = self._by_id.pop(message_id, None)
        if found is None:
            return False
        recipient, sequence = found
        alive = self._of_recipient[recipient]
        del alive[sequence]
        if not alive:
            del self._of_recipient[recipient]
        return True

    def low_water(self, header: Header) -> int:
        """Below which no message to the same recipient is alive; at most the message's own sequence."""
        return next(iter(self._of_recipient.get(header.recipient, ())), header.sequence)
