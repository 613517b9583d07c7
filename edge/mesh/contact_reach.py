"""Whether the peer of a contact is reachable, by round trips of pings (M3).

A peer that is not reachable is offered nothing. Receipts, certificates and what it offers still go over the link, and
bundles that it has accepted are sent. Three rules make a round trip say something about the link:

* A ping is sent only when the peer owes no answer to an offer. With a threshold for latency no further bundles are
  offered once a ping is due, so there is such a moment, and none until it is answered.
* The answer may come after bundles that the peer was sending: a late answer after such data counts as one in time.
* There is one ping at a time, and answers come in order, so neither has a number.

With a threshold nothing is offered before the first answer; one in time is enough then. Afterwards
:mod:`edge.reachability` decides. A ping that is not answered at all counts as `bad_to_go_down` late ones after as many
times the threshold; after `idle_s` the contact ends, with a threshold or without.
"""

from collections.abc import Callable
from random import random
from typing import Final

from edge.mesh.contact_frames import Ping
from edge.mesh.contact_link import ContactLink
from edge.mesh.errors import PeerError
from edge.reachability import Reachability, ReachabilityLimits

FIRST_S: Final = 1.0
"""Without a threshold the first ping is sent so long after the beginning: short contacts go without it."""


class PeerReach:
    """Of one contact. Times are seconds of the carrier's clock."""

    def __init__(self, link: ContactLink, now: float, draw: Callable[[], float] = random) -> None:
        limits = link.limits
        self._link, self._latency_s = link, limits.latency_s
        self._silence_s = limits.bad_to_go_down * limits.latency_s
        self._measured = Reachability(
            ReachabilityLimits(
                latency_s=limits.latency_s,
                good_to_come_up=limits.good_to_come_up,
                bad_to_go_down=limits.bad_to_go_down,
                probe_s=limits.probe_s,
                retry_most_s=limits.probe_s,
            ),
            now if limits.latency_s else now + FIRST_S,
            draw,
            one_is_enough=True,
        )
        self._sent_at: float | None = None  # the ping that is not answered yet
        self._came_between = False  # bundles, since the ping

    @property
    def has_threshold(self) -> bool:
        """Whether latency decides anything."""
        return self._latency_s > 0

    @property
    def is_reachable(self) -> bool:
        """Whether the peer counts as reachable."""
        return not self.has_threshold or self._measured.is_up

    @property
    def problem(self) -> str:
        """Why it does not; empty if it does."""
        return "" if self.is_reachable else self._measured.last_problem or "it has not answered a ping yet"

    @property
    def round_trip_s(self) -> float | None:
        """Smoothed; None before the first answer."""
        return self._measured.round_trip_s

    @property
    def waits(self) -> bool:
        """Whether the peer owes the answer to a ping."""
        return self._sent_at is not None

    def may_offer(self, now: float) -> bool:
        """Whether bundles may be offered now."""
        return not self.has_threshold or (self._measured.is_up and not self.waits and now < self._measured.next_probe)

    def measure(self, now: float) -> None:
        """The peer owes no answer: sends a ping if one is due."""
        if not self.waits and now >= self._measured.next_probe:
            self._sent_at, self._came_between = now, False
            self._link.send(Ping())

    def check(self, now: float) -> None:
        """Time passes: an answer may be missing."""
        if self.has_threshold and self.is_reachable and self._sent_at is not None:
            silent_s = now - self._sent_at
            if silent_s > self._silence_s and not self._came_between:
                self._measured.failed(now, f"a ping is not answered for {silent_s:.1f} s", is_certain=True)

    def take_data(self) -> None:
        """A part of a bundle has come."""
        self._came_between = True

    def take_pong(self, now: float) -> bool:
        """The peer has answered; whether it is reachable now, and was not. Raises PeerError."""
        if self._sent_at is None:
            raise PeerError("it answers a ping that was not sent")
        was_reachable, round_trip_s = self.is_reachable, now - self._sent_at
        self._sent_at = None
        is_late = self.has_threshold and round_trip_s > self._latency_s
        self._measured.answered(now, None if is_late and self._came_between else round_trip_s)
        return self.is_reachable and not was_reachable
