"""Which messages of this agent are alive, and so the low-water mark of a new one; without I/O.

A recipient refuses what is below the mark of the originator that it has seen (:mod:`bundles.seen`). One recipient may
have several destinations: the platform has all topics. So the mark of a message is the lowest sequence of all that are
alive to the same recipient, `None` being the platform.

There may be 100,000, so little is kept of each: its sequence, the number of its recipient and a hash of its id, in
arrays in the order of sequences, and once more its sequence in an array of its recipient. Messages that have ended
leave the arrays later, and together.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from bundles.bundle import Header
from bundles.id_table import IdTable, raw_id, short_hash
from bundles.receipt import Receipt, Role

_ENDED_MOST: Final = 1_000
"""Messages that have ended, which are kept without a search for them."""

_ENDED: Final = 0xFFFF_FFFF


class Ended(NamedTuple):
    """A message that has ended here; `recipient` as above."""

    sequence: int
    recipient: str | None


class OwnMessages:
    """Those that are accepted and have neither been delivered nor expired. `id_of` gives the id of a sequence."""

    def __init__(self, id_of: Callable[[int], str]) -> None:
        self._id_of = id_of
        self._sequences, self._places = array("Q"), array("I")  # the latter in `_recipients`, or _ENDED
        self._hashes = array("I")
        self._table = IdTable(lambda at: raw_id(id_of(self._sequences[at])), lambda at: self._hashes[at])
        self._recipients: list[_Recipient | None] = []
        self._by_name: dict[str | None, _Recipient] = {}
        self._alive = 0

    def __contains__(self, message_id: str) -> bool:
        return self._find(message_id) is not None

    def __len__(self) -> int:
        return self._alive

    def begin(self, recipient: str | None, sequence: int, raw: bytes) -> None:
        """A new message; `raw`: its id. Sequences ascend."""
        found = self._by_name.get(recipient)
        if found is None:
            found = self._by_name[recipient] = _Recipient(recipient, self._free_place())
            self._recipients[found.place] = found
        found.sequences.append(sequence)
        found.alive += 1
        self._alive += 1
        self._sequences.append(sequence)
        self._places.append(found.place)
        self._hashes.append(short_hash(raw))
        if not self._table.add(raw, len(self._sequences) - 1):
            self._forget_ended()

    def is_settled_by(self, receipt: Receipt) -> bool:
        """Whether it is a message of ours that is alive, and the receipt's signer may say that it was delivered."""
        at = self._find(receipt.message_id)
        return at is not None and (receipt.role is not Role.RECIPIENT or receipt.signer == self._recipient(at).name)

    def end(self, message_id: str) -> Ended | None:
        """It has ended; None if it is not one of ours that is alive."""
        at = self._find(message_id)
        if at is None:
            return None
        found = self._recipient(at)
        ended = Ended(self._sequences[at], found.name)
        self._places[at] = _ENDED
        self._alive -= 1
        found.alive -= 1
        if not found.alive:
            del self._by_name[found.name]
            self._recipients[found.place] = None
        elif len(found.sequences) - found.alive > max(_ENDED_MOST, found.alive):
            found.sequences, found.at = array("Q", filter(self._is_alive, found.sequences)), 0
        if len(self._sequences) - self._alive > max(_ENDED_MOST, self._alive):
            self._forget_ended()
        return ended

    def low_water(self, header: Header) -> int:
        """Below which no message to the same recipient is alive here; at most the message's own sequence."""
        found = self._by_name.get(header.recipient)
        if found is None:
            return header.sequence
        while not self._is_alive(found.sequences[found.at]):
            found.at += 1
        return found.sequences[found.at]

    def _find(self, message_id: str) -> int | None:
        """Where a message of ours is that is alive."""
        try:
            at = self._table.find(raw_id(message_id))
        except ValueError:
            return None
        return None if at is None or self._places[at] == _ENDED else at

    def _recipient(self, at: int) -> "_Recipient":
        found = self._recipients[self._places[at]]
        assert found is not None
        return found

    def _is_alive(self, sequence: int) -> bool:
        at = bisect_left(self._sequences, sequence)
        return at < len(self._sequences) and self._sequences[at] == sequence and self._places[at] != _ENDED

    def _free_place(self) -> int:
        if len(self._recipients) > 2 * len(self._by_name) + _ENDED_MOST:
            return self._recipients.index(None)
        self._recipients.append(None)
        return len(self._recipients) - 1

    def _forget_ended(self) -> None:
        if self._alive == len(self._sequences):
            self._table.rebuild(range(self._alive))
            return
        alive = array("I", (at for at, place in enumerate(self._places) if place != _ENDED))
        self._sequences = array("Q", map(self._sequences.__getitem__, alive))
        self._places = array("I", map(self._places.__getitem__, alive))
        self._hashes = array("I", map(self._hashes.__getitem__, alive))
        self._table.rebuild(range(len(alive)))


class _Recipient:
    """`sequences` ascend, the messages of those before `at` have ended; `alive`: how many have not."""

    __slots__ = ("alive", "at", "name", "place", "sequences")

    def __init__(self, name: str | None, place: int) -> None:
        self.name, self.place, self.alive, self.at = name, place, 0, 0
        self.sequences = array("Q")
