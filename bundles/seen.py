"""What a recipient has been given, so that it sees each message once, whichever way its copies come (M14).

No list of recent ids: such a list rolls over, and what it forgets is delivered again. Instead, for each originator and
incarnation, a low-water mark and the sequences at or above it that were taken. The mark only rises, and what is below
is refused. So memory is bounded by the messages that are alive, and no clock is trusted.

A bundle carries two marks of its originator (:mod:`bundles.bundle`), and the way on which it comes says which counts:

* *From the platform*: `low_water`. What is below it may be with the platform; but that brings what it has in the order
  in which it took it, so all of that has come before.
* *From a peer*: `ended_below`. What the platform still has may come later, and must not be refused then.

Originators choose their incarnations, so one that is hostile makes as many as it likes. An originator of which there
are too many loses the memory of its own, the one unused for longest first: what it can gain by that, a second
delivery, it has anyhow by sending the message anew. Of others one is forgotten only if all are needed, and nothing has
come of it for so long that none of its messages can be alive.
"""

from collections import Counter, OrderedDict
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


class SeenMark(NamedTuple):
    """What changes about a source with each message, beside its sequence. `used_s`: when one was taken last."""

    source: Source
    low_water: int
    used_s: float


class SeenState(NamedTuple):
    """All that is stored about a source: its mark, and the sequences at or above it that were taken."""

    source: Source
    low_water: int
    above: tuple[int, ...]
    used_s: float = 0.0


class SeenLimits(NamedTuple):
    """`sources` of all originators, `of_originator` of one; `above`: sequences of a source that are above its mark. A
    source counts as over `remembered_s` after a message was taken last: longer than any of its bundles can be alive."""

    sources: int = 10_000
    of_originator: int = 100
    above: int = 100_000
    remembered_s: float = 60 * 86_400.0


@dataclass(slots=True)
class _Taken:
    low_water: int = 1
    above: set[int] = field(default_factory=set)
    used_s: float = 0.0


class Seen:
    """The memory of one recipient; beyond its limits messages are refused, never delivered twice, but for those of an
    originator with too many incarnations. In the transaction that stores a message, forget what :meth:`forgotten`
    returns, and store :meth:`mark` and the message's sequence, without those that are below the mark now. `stored`: the
    sources used last come last. Times are seconds of any clock that never goes back."""

    def __init__(self, limits: SeenLimits | None = None, stored: Iterable[SeenState] = ()) -> None:
        self._limits = limits or SeenLimits()
        self._sources: OrderedDict[Source, _Taken] = OrderedDict()  # the one unused for longest first
        self._counts: Counter[str] = Counter()  # of an originator's sources
        self._forgotten: list[Source] = []
        for one in stored:
            self._sources[one.source] = _Taken(one.low_water, set(one.above), one.used_s)
            self._counts[one.source[0]] += 1

    def has(self, header: Header) -> bool:
        """Whether the message is a duplicate."""
        taken = self._sources.get((header.originator, header.incarnation))
        return taken is not None and (header.sequence < taken.low_water or header.sequence in taken.above)

    def take(self, header: Header, now_s: float, *, from_platform: bool = False) -> Verdict:
        """Remembers a message that is to be given to the application now, if the verdict is NEW. `from_platform`: it
        comes from the recipient's inbox there, in the inbox's order."""
        if self.has(header):
            return Verdict.DUPLICATE
        source = header.originator, header.incarnation
        taken = self._sources.get(source)
        if taken is None:
            if not self._make_capacity(header.originator, now_s):
                return Verdict.FULL
            taken = self._sources[source] = _Taken()
            self._counts[header.originator] += 1
        low_water = header.low_water if from_platform else header.ended_below
        if low_water > taken.low_water:
            taken.low_water = low_water
            taken.above = {sequence for sequence in taken.above if sequence >= low_water}
        if len(taken.above) >= self._limits.above:
            return Verdict.FULL
        taken.above.add(header.sequence)
        while taken.low_water in taken.above:
            taken.above.remove(taken.low_water)
            taken.low_water += 1
        taken.used_s = now_s
        self._sources.move_to_end(source)
        return Verdict.NEW

    def mark(self, source: Source) -> SeenMark | None:
        """What is to be stored about a source; None if it is forgotten."""
        one = self._sources.get(source)
        return None if one is None else SeenMark(source, one.low_water, one.used_s)

    def forgotten(self) -> list[Source]:
        """The sources that were forgotten since the last call."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def _make_capacity(self, originator: str, now_s: float) -> bool:
        """Whether another source of the originator can be remembered."""
        limits = self._limits
        if self._counts[originator] >= limits.of_originator:
            self._forget_one_of(originator)
        elif len(self._sources) >= limits.sources:
            self._forget_unused(now_s)
        if len(self._sources) >= limits.sources:
            [(most, count)] = self._counts.most_common(1)
            if count < 2:
                return False
            self._forget_one_of(most)
        return True

    def _forget_unused(self, now_s: float) -> None:
        while self._sources:
            source, taken = next(iter(self._sources.items()))
            if taken.used_s + self._limits.remembered_s > now_s:
                return
            self._forget(source)

    def _forget_one_of(self, originator: str) -> None:
        self._forget(next(source for source in self._sources if source[0] == originator))

    def _forget(self, source: Source) -> None:
        del self._sources[source]
        self._counts[source[0]] -= 1
        if not self._counts[source[0]]:
            del self._counts[source[0]]
        self._forgotten.append(source)
