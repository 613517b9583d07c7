"""Digests of copies that wait for the other feed's copy, so that a difference between the two is noticed (S3).

A digest is the CRC-32 of the payload: it finds what went wrong, at a chance of 2^-32 to miss it, and not forgery. In
one number with the feed it takes little space.
"""

from collections.abc import Iterable
from itertools import islice
from zlib import crc32


class Digests:
    """At most `count_max`; the oldest half is forgotten when they are more."""

    __slots__ = ("_known", "_max")

    def __init__(self, count_max: int, known: Iterable[tuple[int, int]] = ()) -> None:
        self._max = count_max
        self._known = dict(known)

    def add(self, feed: int, number: int, payload: bytes) -> None:
        """Remembers the first copy of a number."""
        known = self._known
        known[number] = crc32(payload) << 1 | feed
        if len(known) > self._max:
            self._known = dict(islice(known.items(), (len(known) + 1) // 2, None))

    def differs(self, feed: int, number: int, payload: bytes) -> bool:
        """Whether a further copy has another payload; False if the first is forgotten. The other feed's copy is the
        last that is compared."""
        found = self._known.get(number)
        if found is None:
            return False
        if found & 1 != feed:
            del self._known[number]
        return found >> 1 != crc32(payload)

    def export(self) -> tuple[tuple[int, int], ...]:
        """What :meth:`__init__` takes as `known`."""
        return tuple(self._known.items())
