"""What an agent does by what message presence answers, and whether presence is in reach (M10, M11). Pure.

A claim's end is a time by the broker's clock; ours may differ, so a message that is left to another agent is asked
about again after a while, whatever the record says. Presence is only asked to spare duplicates, and any enrolled agent
may report anything; so it can hold a message back for a limited time only (:mod:`.delivery_plan`).
"""

from collections.abc import Callable
from enum import Enum, auto
from random import random
from typing import Final

from edge.reconnect import FullJitter
from schemas.states import MessagePresenceState

_FRESH_S: Final = 30.0
"""For how long after presence was to be asked again its last answer still counts: perhaps there is nothing to ask."""


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
    is_taken = claim is not None and claim.until_ms > now_ms and not _is_ours(claim.agent, agent)
    return Verdict.TAKEN if is_taken else Verdict.CLAIM


def _is_ours(claimant: str, agent: str) -> bool:
    """Whether it is this agent that has the claim. Who reports over HTTP has its name behind `http:` or `http-USER:`
    there (docs/http.md, client ids)."""
    return claimant == agent or (claimant.startswith(("http:", "http-")) and claimant.endswith(f":{agent}"))


class PresenceReach:
    """Whether message presence answers."""

    def __init__(self, first_s: float = 1.0, most_s: float = 30.0, draw: Callable[[], float] = random) -> None:
        self._backoff, self._first_s = FullJitter(first_s, most_s, draw), first_s
        self._failures = 0
        self._next = 0.0
        self._out_since: float | None = None
        self._is_confirmed = False

    def out_since(self, now: float) -> float | None:
        """Since when it does not answer; None if it does, or nobody has asked lately."""
        return self._out_since if self._is_confirmed and now <= self._next + _FRESH_S else None

    def answered(self) -> None:
        """It is in reach."""
        self._out_since, self._failures, self._next = None, 0, 0.0

    def failed(self, now: float, retry_after_s: float = 0.0) -> None:
        """It is not, although the gateway is."""
        self._out_since = now if self._out_since is None else self._out_since
        self._is_confirmed = True
        self._next = now + max(retry_after_s, self._first_s / 2, self._backoff.delay_s(self._failures))
        self._failures += 1

    def unknown(self) -> None:
        """No gateway is reachable, so nobody knows: it is asked first when one is again. If it still does not answer
        then, the time between counts too: an agent may never have a gateway for long."""
        self._is_confirmed, self._failures, self._next = False, 0, 0.0

    def is_due(self, now: float) -> bool:
        """Whether it may be asked now."""
        return now >= self._next
