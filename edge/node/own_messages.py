"""Which messages of this agent are alive, and so the low-water mark of a new one; without I/O.

A recipient refuses what is below the mark of the originator that it has seen (:mod:`bundles.seen`). One recipient may
have several destinations: the platform has all topics. So the mark of a message is the lowest sequence of all that are
alive to the same recipient, `None` being the platform.

There may be 100,000, so little is kept of each: its id with one number, made of its recipient's and its sequence, and
its sequence once more in an array of its recipient, from which those that are over are removed later and together.
"""

from array import array
from typing import Final

from bundles.bundle import Header
from bundles.receipt import Receipt, Role

_SEQUENCE_BITS: Final = 64
_OVER_MOST: Final = 1_000


class OwnMessages:
    """Those that are accepted and have neither been delivered nor expired."""

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._by_recipient: dict[str | None, _Recipient] = {}
        self._by_number: dict[int, _Recipient] = {}
        self._number = 0

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, recipient: str | None, sequence: int, message_id: str) -> None:
        """A new message. Sequences ascend."""
        found = self._by_recipient.get(recipient)
        if found is None:
            self._number += 1
            found = self._by_recipient[recipient] = self._by_number[self._number] = _Recipient(recipient, self._number)
        found.begin(sequence)
        self._by_id[message_id] = found.number << _SEQUENCE_BITS | sequence

    def is_settled_by(self, receipt: Receipt) -> bool:
        """Whether it is a message of ours that is alive, and the receipt's signer may say that it was delivered."""
        found = self._by_id.get(receipt.message_id)
        if found is None:
            return False
        return receipt.role is not Role.RECIPIENT or receipt.signer == self._by_number[found >> _SEQUENCE_BITS].name

    def end(self, message_id: str) -> bool:
        """It has ended; False if it is not one of ours that is alive."""
        found = self._by_id.pop(message_id, None)
        if found is None:
            return False
        recipient = self._by_number[found >> _SEQUENCE_BITS]
        recipient.end(found & (1 << _SEQUENCE_BITS) - 1)
        if not len(recipient):
            del self._by_number[recipient.number], self._by_recipient[recipient.name]
        return True

    def low_water(self, header: Header) -> int:
        """Below which no message to the same recipient is alive; at most the message's own sequence."""
        found = self._by_recipient.get(header.recipient)
        return header.sequence if found is None else found.first


class _Recipient:
    """`_sequences` ascend; those before `_at`, and in `_over`, have ended."""

    def __init__(self, name: str | None, number: int) -> None:
        self.name, self.number = name, number
        self._sequences = array("Q")
        self._over: set[int] = set()
        self._at = 0

    def __len__(self) -> int:
        return len(self._sequences) - self._at - len(self._over)

    @property
    def first(self) -> int:
        return self._sequences[self._at]

    def begin(self, sequence: int) -> None:
        self._sequences.append(sequence)

    def end(self, sequence: int) -> None:
        self._over.add(sequence)
        while self._over and self._sequences[self._at] in self._over:
            self._over.remove(self._sequences[self._at])
            self._at += 1
        if self._at + len(self._over) > max(_OVER_MOST, len(self._sequences) // 2):
            alive = (one for one in self._sequences[self._at :] if one not in self._over)
            self._sequences, self._at = array("Q", alive), 0
            self._over.clear()
