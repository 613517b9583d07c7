"""What an agent does by what message presence answers, and whether presence is in reach (M10, M11). Pure.

A claim's end is a time by the broker's clock; ours may differ, so a message that is left to another agent is asked
about again after a while, whatever the record says. Presence is only asked to spare duplicates, and any enrolled agent
may report anything; so it can hold a message back for a limited time only (:mod:`.delivery_plan`).
"""

from collections.abc import Callable
from enum import Enum, auto
from random import random

from edge.reconnect import FullJitter
from schemas.states import MessagePresenceState


class Verdict(Enum):
    """What an answer of message presence means for an agent that could deliver."""

    CLAIM = auto()
    TAKEN = auto()  # another agent has the claim
    DONE = auto()  # delivered, expired or retired: drop it, once there is a receipt


def verdict(state: MessagePresenceState | None, agent: str, now_ms: float) -> Verdict:
    """None, an unknown message, means claim and never drop: a gateway remembers a limited number of messages."""
    if state is None or state.v != 1:
        return Verdict.CLAIM
    if state.state != "pending" or state.retired:
        return Verdict.DONE
    claim = state.claim
    is_taken = claim is not None and claim.until_ms > now_ms and claim.agent != agent
    return Verdict.TAKEN if is_taken else Verdict.CLAIM


class PresenceReach:
    """Whether message presence answers. `out_since`: since when it does not, None if it does, or nobody has asked."""

    def __init__(self, first_s: float = 1.0, most_s: float = 30.0, draw: Callable[[], float] = random) -> None:
        self._backoff, self._first_s = FullJitter(first_s, most_s, draw), first_s
        self._failures = 0
        self._next = 0.0
        self.out_since: float | None = None

    def answered(self) -> None:
        """It is in reach."""
        self.out_since, self._failures, self._next = None, 0, 0.0

    def failed(self, now: float, retry_after_s: float = 0.0) -> None:
        """It is not, although the gateway is."""
        self.out_since = now if self.out_since is None else self.out_since
        self._next = now + max(retry_after_s, self._first_s / 2, self._backoff.delay_s(self._failures))
        self._failures += 1

    def unknown(self) -> None:
        """No gateway is reachable, so nobody knows: to be asked first when one is again."""
        self.answered()

    def is_due(self, now: float) -> bool:
        """Whether it may be asked now."""
        return now >= self._next
