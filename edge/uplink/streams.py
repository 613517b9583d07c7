"""What one originator has sent to one destination, in sequence: the bundles that wait, and those that were tried. Pure.

Most of 100,000 bundles wait and nothing else is known of them, so for each there is only a reference. What is asked
about or posted gets an :class:`Entry`. A turn of the uplink looks at the streams, at their entries, and at the bundles
that it takes; of those that wait it looks at no more.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from bundles.bundle import Header
from edge.mesh.held import Held
from edge.uplink.bearers import BearerState, may_take

Lane = Literal["", "ask", "post"]


@dataclass(slots=True, eq=False)
class Entry:
    """A bundle that was tried, and how far it is. `ask_at`, `post_at`: not before; `holds_back`: neither is what comes
    after it. `withheld_since`: since when presence holds it back; `unjudged_since`: since when it does not say whether
    the claim is granted; `is_confirmed`: one of both has been so since the uplink is up. `lane`: in which it is in
    flight."""

    held: Held
    header: Header
    is_urgent: bool
    lease_until: float = 0.0
    ask_at: float = 0.0
    post_at: float = 0.0
    withheld_since: float | None = None
    unjudged_since: float | None = None
    attempts: int = 0
    refusal: str = ""
    lane: Lane = ""
    is_confirmed: bool = False
    holds_back: bool = False
    is_reported: bool = False  # that we attempt to deliver it

    @property
    def id(self) -> str:
        """The message's."""
        return self.held.message_id


@dataclass(slots=True, eq=False)
class Stream:
    """`tried` and `waiting` are in sequence, the latter once :meth:`in_sequence` was called. `may_need_claims`: one
    that waits may need a claim; `all_need_claims`: all do. `urgent`: how many are."""

    tried: list[Entry] = field(default_factory=list)
    waiting: deque[Held] = field(default_factory=deque)
    may_need_claims: bool = False
    all_need_claims: bool = True
    urgent: int = 0
    last_sequence: int = 0
    is_sorted: bool = True

    def __len__(self) -> int:
        return len(self.tried) + len(self.waiting)

    def wait(self, held: Held, *, needs_claim: bool) -> None:
        """A bundle that is new."""
        if not self.waiting:
            self.may_need_claims, self.all_need_claims, self.last_sequence, self.is_sorted = False, True, 0, True
        sequence = held.sequence
        self.is_sorted &= self.last_sequence < sequence
        self.last_sequence = sequence
        self.may_need_claims |= needs_claim
        self.all_need_claims &= needs_claim
        self.waiting.append(held)

    def in_sequence(self, *, with_waiting: bool = True) -> Iterator[Entry | Held]:
        """All of them in sequence. Nothing may be taken, added or removed meanwhile."""
        tried = iter(self.tried)
        entry = next(tried, None)
        if with_waiting:
            self._sort()
            for held in self.waiting:
                while entry is not None and entry.header.sequence < held.sequence:
                    yield entry
                    entry = next(tried, None)
                yield held
        while entry is not None:
            yield entry
            entry = next(tried, None)

    def first(self) -> Held | None:
        """The next one in sequence that is not refused."""
        self._sort()
        waiting = self.waiting[0] if self.waiting else None
        tried = next((entry for entry in self.tried if not entry.refusal), None)
        if tried is None or (waiting is not None and waiting.sequence < tried.header.sequence):
            return waiting
        return tried.held

    def try_them(self, entries: Sequence[Entry]) -> None:
        """These, which waited, are tried now; they come in the sequence in which they wait."""
        passed, waiting = [], self.waiting
        for entry in entries:
            while (held := waiting.popleft()) is not entry.held:
                passed.append(held)
        waiting.extendleft(reversed(passed))
        self.tried += entries
        self.tried.sort(key=_sequence_of_entry)

    def _sort(self) -> None:
        if not self.is_sorted:
            self.waiting = deque(sorted(self.waiting, key=attrgetter("sequence")))
            self.last_sequence, self.is_sorted = self.waiting[-1].sequence, True


class BearerChoice:
    """:func:`edge.uplink.bearers.may_take` for one bearer now, worked out once for all lengths of waiting: it changes
    only where the `after_s` of a bearer is over."""

    def __init__(self, at: BearerState, bearers: Iterable[BearerState], now: float) -> None:
        self._now, bearers = now, list(bearers)
        self._from_s = sorted({0.0, *(state.bearer.after_s for state in (at, *bearers))})
        self._takes = {
            is_urgent: [may_take(at, bearers, waited_s, is_urgent=is_urgent) for waited_s in self._from_s]
            for is_urgent in (False, True)
        }

    @property
    def takes_any(self) -> bool:
        """Whether there can be a message that it takes."""
        return any(self._takes[False]) or any(self._takes[True])

    def takes(self, held: Held, *, is_urgent: bool) -> bool:
        """Whether the bearer takes the message."""
        waited_s = max(0.0, self._now - held.since)
        return self._takes[is_urgent][bisect_right(self._from_s, waited_s) - 1]


def _sequence_of_entry(entry: Entry) -> int:
    return entry.header.sequence
