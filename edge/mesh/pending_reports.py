"""What an agent has not been able to publish to message presence yet, and publishes when it is in reach again (M10)."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas.events import MessagePresenceEvent

_LEAST_FIRST: Final = ("attempting", "propagated", "claimed", "refused", "expired", "retired", "delivered")
"""What is forgotten first when the log is full: what others can do without."""


class PendingReport(NamedTuple):
    """An event and its number in the log."""

    number: int
    event: MessagePresenceEvent


class PendingReports:
    """Events in the order in which they happened, at most `most`. When full, the oldest of the least important kind
    makes way; `forgotten` counts them. Publishing twice does no harm: presence is a join."""

    def __init__(self, most: int = 100_000, stored: Iterable[PendingReport] = ()) -> None:
        if most < 1:
            raise ValueError(f"a log of pending reports must hold at least 1, not {most}")
        self._most = most
        self._events: OrderedDict[int, MessagePresenceEvent] = OrderedDict(stored)
        self._of_kind: dict[str, OrderedDict[int, None]] = {kind: OrderedDict() for kind in _LEAST_FIRST}
        for number, event in self._events.items():
            self._of_kind[event.event][number] = None
        self._next = max(self._events, default=0) + 1
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_pending(self) -> bool:
        """M10's flag: whether presence does not know everything yet."""
        return bool(self._events)

    def append(self, event: MessagePresenceEvent) -> PendingReport:
        """Logs an event. Store it before telling anybody of what happened."""
        report = PendingReport(self._next, event)
        self._next += 1
        self._events[report.number] = event
        self._of_kind[event.event][report.number] = None
        if len(self._events) > self._most:
            self._forget_one()
        return report

    def batch(self, most: int) -> list[PendingReport]:
        """The oldest events, to publish in one call; they stay in the log until :meth:`published`."""
        return [PendingReport(*item) for item, _ in zip(self._events.items(), range(most), strict=False)]

    def published(self, numbers: Iterable[int]) -> None:
        """Removes what presence has stored; numbers that are gone already are passed over."""
        for number in numbers:
            event = self._events.pop(number, None)
            if event is not None:
                del self._of_kind[event.event][number]

    def _forget_one(self) -> None:
        of_kind = next(numbers for kind in _LEAST_FIRST if (numbers := self._of_kind[kind]))
        self.published([next(iter(of_kind))])
        self.forgotten += 1
