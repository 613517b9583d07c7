"""Finds what is known of a message by its id, in a few bytes each; without I/O.

A dictionary takes about 100 bytes an entry with its key, and an agent that remembers 100,000 messages has 80 MB for all
it does (M19). So the ids stay where they are kept, and this table has only their positions: open addressing with
linear probing, four bytes a slot, at most two thirds of the slots used. The hash is Python's, whose key is random in
each process: peers choose ids, but not where they collide.
"""

from array import array
from collections.abc import Callable, Iterable
from typing import Final

_LEAST_SLOTS: Final = 64


def raw_id(message_id: str) -> bytes:
    """A message's id, which is in canonical text, as 16 bytes. Raises ValueError if it is not hexadecimal."""
    return bytes.fromhex(message_id.replace("-", ""))


def text_id(raw: bytes) -> str:
    """The other way round. To make a UUID of it takes longer."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def short_hash(raw: bytes) -> int:
    """Of an id, 32 bits."""
    return hash(raw) & 0xFFFF_FFFF


class IdTable:
    """`id_at` gives the id at a position, as 16 bytes; anything else if there is none any more. `hash_at`, for ids that
    take long to make, gives the last 32 bits of their hash (:func:`short_hash`). Positions are from 0 to 4,294,967,294;
    each is added once until :meth:`rebuild`."""

    def __init__(self, id_at: Callable[[int], bytes], hash_at: Callable[[int], int] | None = None) -> None:
        self._id_at = id_at
        self._hash_at = hash_at or (lambda at: short_hash(id_at(at)))
        self.rebuild(())

    def find(self, raw: bytes) -> int | None:
        """The position of an id that is there."""
        table, id_at, mask = self._table, self._id_at, self._mask
        slot = short_hash(raw) & mask
        while number := table[slot]:
            if id_at(number - 1) == raw:
                return number - 1
            slot = (slot + 1) & mask
        return None

    def add(self, raw: bytes, position: int) -> bool:
        """The id, which is not in it, is at this position now; False if the table is full: call :meth:`rebuild`, with
        this position too."""
        if 3 * self._used >= 2 * (self._mask + 1):
            return False
        self._put(short_hash(raw), position)
        return True

    def rebuild(self, positions: Iterable[int]) -> None:
        """It has these from now on, and space for a third more at least."""
        found = array("I", positions)
        slots = _LEAST_SLOTS
        while slots < 2 * len(found):
            slots *= 2
        table, mask, hash_at = array("I", bytes(4 * slots)), slots - 1, self._hash_at
        for position in found:
            slot = hash_at(position) & mask
            while table[slot]:
                slot = (slot + 1) & mask
            table[slot] = position + 1
        self._table, self._mask, self._used = table, mask, len(found)

    def _put(self, hashed: int, position: int) -> None:
        slot = hashed & self._mask
        while self._table[slot]:
            slot = (slot + 1) & self._mask
        self._table[slot] = position + 1
        self._used += 1
