"""Which bundle may go over which bearer now (M4, M19): a pure function of the bearers' states and the message's wait.

A bearer has a rank, its `priority` and then its `cost`; lower is better. A message goes over the best bearer that is
up. `after_s` keeps a costly one for messages that have waited at least that long, or are urgent:

* A bearer is *open* to a message if it is up, and the message has waited for `after_s` or is urgent.
* The best of the open ones takes the message; several of the same rank share what there is.
* While a better open one is busy with other messages, a bearer with `after_s` above 0 joins it, for the messages that
  have waited; one with `after_s` 0 takes over only when no better one is up. An urgent message goes over any that is
  not busy.

So a costlier bearer never takes a message before its time, unless it is urgent; if the best goes down, the next one
takes over when its `after_s` is over; and a message that waits becomes open to every bearer, so none starves.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bearer:
    """A way to the platform: `url` of an access point or a gateway, and what a connection is bound to."""

    name: str
    url: str
    source_address: str = ""
    interface: str = ""
    priority: int = 0
    cost: float = 0.0
    latency_s: float = 0.0
    after_s: float = 0.0

    @property
    def rank(self) -> tuple[int, float]:
        """Lower is better."""
        return self.priority, self.cost


@dataclass(frozen=True, slots=True)
class BearerState:
    """`is_up`: usable now. `is_busy`: it sends something now, and takes nothing more until that is done."""

    bearer: Bearer
    is_up: bool
    is_busy: bool = False

    def is_open(self, waited_s: float, *, is_urgent: bool) -> bool:
        """Whether a message may go over it."""
        return self.is_up and (is_urgent or waited_s >= self.bearer.after_s)


def may_take(candidate: BearerState, all_of_them: Iterable[BearerState], waited_s: float, *, is_urgent: bool) -> bool:
    """Whether the candidate, which is not busy, takes a message that has waited for so long."""
    if not candidate.is_open(waited_s, is_urgent=is_urgent):
        return False
    bearer = candidate.bearer
    better = [
        state
        for state in all_of_them
        if state.bearer.rank < bearer.rank and state.is_open(waited_s, is_urgent=is_urgent)
    ]
    return not better or (all(state.is_busy for state in better) and (is_urgent or bearer.after_s > 0))
