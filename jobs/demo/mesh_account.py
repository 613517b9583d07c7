"""What the mesh's demo counts: each message is accepted once, and arrives once, where it was to. Pure; time is that of
the flight plan."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple


class Accepted(NamedTuple):
    """An agent has it on disk since `at`. `to`: the recipient's place; empty: the platform. `id`: as the agent says."""

    number: int
    sender: str
    to: str
    id: str
    at: datetime


class Verdict(NamedTuple):
    """`doubled`: arrivals beyond the first of each message; `stray`: at a place that it was not to, or unknown."""

    accepted: int
    arrived: int
    lost: int
    doubled: int
    stray: int


class MeshAccount:
    """Arrivals may be reported before the acceptance: an agent's answer and the message race."""

    def __init__(self) -> None:
        self._accepted: dict[int, Accepted] = {}
        self._arrivals: dict[int, list[tuple[str, datetime]]] = {}

    def accept(self, message: Accepted) -> None:
        self._accepted[message.number] = message

    def arrive(self, number: int, place: str, at: datetime) -> None:
        """`place`: the airport at whose agent it has arrived; empty: the subscriber at the platform."""
        self._arrivals.setdefault(number, []).append((place, at))

    @property
    def messages(self) -> list[Accepted]:
        """In order of their numbers."""
        return [self._accepted[number] for number in sorted(self._accepted)]

    def missing(self) -> list[Accepted]:
        """What has not arrived."""
        return [message for message in self.messages if self._first(message) is None]

    def delay(self, message: Accepted) -> timedelta | None:
        """From its acceptance to its first arrival; None if it has not arrived."""
        at = self._first(message)
        return None if at is None else max(at - message.at, timedelta())

    def verdict(self) -> Verdict:
        expected = Counter({(one.number, one.to): 1 for one in self._accepted.values()})
        found = Counter((number, place) for number, all_of_it in self._arrivals.items() for place, _ in all_of_it)
        arrived = len(expected.keys() & found.keys())
        stray = sum((found[key] for key in found.keys() - expected.keys()), 0)
        doubled = sum(found[key] - 1 for key in expected.keys() & found.keys())
        return Verdict(len(expected), arrived, len(expected) - arrived, doubled, stray)

    def _first(self, message: Accepted) -> datetime | None:
        return min((at for place, at in self._arrivals.get(message.number, ()) if place == message.to), default=None)


def quantile(delays: Iterable[timedelta], share: float) -> timedelta | None:
    """The smallest delay that at least `share` of them do not exceed; None of none."""
    ordered = sorted(delays)
    if not ordered:
        return None
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
