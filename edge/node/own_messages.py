"""Which messages of this agent are alive, and so the low-water mark of a new one; without I/O.

A recipient refuses what is below the mark of the originator that it has seen (:mod:`bundles.seen`). One recipient may
have several destinations: the platform has all topics. So the mark of a message is the lowest sequence of all that are
alive to the same recipient, `None` being the platform.

There may be 100,000, so little is kept of each: its id in a dictionary, and its sequence in an array of its recipient.
Sequences of messages that have ended leave the array later, and together: the id that a sequence gives says whether
its message is alive.
"""

from array import array
from collections.abc import Callable
from typing import Final

from bundles.bundle import Header
from bundles.receipt import Receipt, Role

_ENDED_MOST: Final = 1_000
"""Sequences of messages that have ended, which are kept without a search for them."""


class OwnMessages:
    """Those that are accepted and have neither been delivered nor expired. `id_of` gives the id of a sequence."""

    def __init__(self, id_of: Callable[[int], str]) -> None:
        self._id_of = id_of
        self._by_id: dict[str, _Recipient] = {}
        self._recipients: dict[str | None, _Recipient] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, recipient: str | None, sequence: int, message_id: str) -> None:
        """A new message. Sequences ascend."""
        found = self._recipients.get(recipient)
        if found is None:
            found = self._recipients[recipient] = _Recipient(recipient)
        found.sequences.append(sequence)
        found.alive += 1
        self._by_id[message_id] = found

    def is_settled_by(self, receipt: Receipt) -> bool:
        """Whether it is a message of ours that is alive, and the receipt's signer may say that it was delivered."""
        found = self._by_id.get(receipt.message_id)
        return found is not None and (receipt.role is not Role.RECIPIENT or receipt.signer == found.name)

    def end(self, message_id: str) -> bool:
        """It has ended; False if it is not one of ours that is alive."""
        found = self._by_id.pop(message_id, None)
        if found is None:
            return False
        found.alive -= 1
        if not found.alive:
            del self._recipients[found.name]
        elif len(found.sequences) - found.alive > max(_ENDED_MOST, found.alive):
            found.sequences, found.at = array("Q", filter(self._is_alive, found.sequences)), 0
        return True

    def low_water(self, header: Header) -> int:
        """Below which no message to the same recipient is alive; at most the message's own sequence."""
        found = self._recipients.get(header.recipient)
        if found is None:
            return header.sequence
        while not self._is_alive(found.sequences[found.at]):
            found.at += 1
        return found.sequences[found.at]

    def _is_alive(self, sequence: int) -> bool:
        return self._id_of(sequence) in self._by_id


class _Recipient:
    """`sequences` ascend, the messages of those before `at` have ended; `alive`: how many have not."""

    __slots__ = ("alive", "at", "name", "sequences")

    def __init__(self, name: str | None) -> None:
        self.name, self.alive, self.at = name, 0, 0
        self.sequences = array("Q")
