"""What a recipient has been given, so that it sees each message once, whichever way its copies come (M14).

No list of recent ids: such a list rolls over, and what it forgets is delivered again. Instead, for each originator and
incarnation, a low-water mark and the sequences at or above it that were taken. The mark only rises, and what is below
is refused. So memory is bounded by the messages that are alive, and no clock is trusted.

A bundle carries two marks of its originator (:mod:`bundles.bundle`), and the way on which it comes says which counts:

* *From the platform*: `low_water`. What is below it may be with the platform; but that brings what it has in the order
  in which it took it, so all of that has come before.
* *From a peer*: `ended_below`. What the platform still has may come later, and must not be refused then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from bundles.bundle import Header

Source = tuple[str, int]
"""Originator and incarnation."""


class Verdict(Enum):
    """Whether a message is to be given to the application."""

    NEW = auto()
    DUPLICATE = auto()
    FULL = auto()  # it cannot be remembered, so it must not be taken now


class SeenState(NamedTuple):
    """What is stored about a source."""

    source: Source
    low_water: int
    above: tuple[int, ...]


@dataclass(slots=True)
class _Taken:
    low_water: int = 1
    above: set[int] = field(default_factory=set)


class Seen:
    """The memory of one recipient. `sources_max` and `above_max` (sequences of a source) bound it; beyond them messages
    are refused, never delivered twice. Store :meth:`export` in the transaction that stores the message."""

    def __init__(self, sources_max: int = 10_000, above_max: int = 100_000, stored: Iterable[SeenState] = ()) -> None:
        self._sources_max, self._above_max = sources_max, above_max
        self._sources = {one.source: _Taken(one.low_water, set(one.above)) for one in stored}

    def has(self, header: Header) -> bool:
        """Whether the message is a duplicate."""
        taken = self._sources.get((header.originator, header.incarnation))
        return taken is not None and (header.sequence < taken.low_water or header.sequence in taken.above)

    def take(self, header: Header, *, from_platform: bool = False) -> Verdict:
        """Remembers a message that is to be given to the application now, if the verdict is NEW. `from_platform`: it
        comes from the recipient's inbox there, in the inbox's order."""
        if self.has(header):
            return Verdict.DUPLICATE
        source = header.originator, header.incarnation
        taken = self._sources.get(source)
        if taken is None:
            if len(self._sources) >= self._sources_max:
                return Verdict.FULL
            taken = self._sources[source] = _Taken()
        low_water = header.low_water if from_platform else header.ended_below
        if low_water > taken.low_water:
            taken.low_water = low_water
            taken.above = {sequence for sequence in taken.above if sequence >= low_water}
        if len(taken.above) >= self._above_max:
            return Verdict.FULL
        taken.above.add(header.sequence)
        while taken.low_water in taken.above:
            taken.above.remove(taken.low_water)
            taken.low_water += 1
        return Verdict.NEW

    def export(self) -> list[SeenState]:
        """What is to be stored."""
        return [SeenState(source, one.low_water, tuple(sorted(one.above))) for source, one in self._sources.items()]
