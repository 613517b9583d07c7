"""Whether a gateway over a bearer, or a peer of the mesh, is reachable, by measurements (M3). Pure: times are passed
in, in seconds.

A request is *good* if it was answered in time; one that took longer than `latency_s` is *bad* as if it had failed: no
connection and too much latency both count as not reachable. The way comes up after `good_to_come_up` good ones in
sequence and goes down after `bad_to_go_down` bad ones, so a single one changes nothing; but it goes down at once if
something says that there is no way (`is_certain`: connection refused, no route, the page of a login).

Probes: every `probe_s` seconds while it is up; soon after one bad request, to know more; while it is down after pauses
with full jitter that grow to `retry_most_s`; at once when the network has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import random

from edge.reconnect import FullJitter

_GAIN = 1 / 8  # of the smoothed round trip (RFC 6298, 2.3), and of the loss


@dataclass(frozen=True, slots=True)
class ReachabilityLimits:
    """`latency_s` 0: no threshold."""

    latency_s: float = 0.0
    good_to_come_up: int = 2
    bad_to_go_down: int = 3
    probe_s: float = 30.0
    confirm_s: float = 0.5
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0


class Reachability:
    """Of one bearer or peer; down at first. `now`: when the first probe is due. `one_is_enough`: the first request of
    all brings it up if it is good. `round_trip_s` is smoothed, None before the first measurement; `loss` is the part of
    requests without a good answer, smoothed."""

    def __init__(
        self,
        limits: ReachabilityLimits,
        now: float,
        draw: Callable[[], float] = random,
        *,
        one_is_enough: bool = False,
    ) -> None:
        self._limits, self._draw = limits, draw
        self._backoff = FullJitter(limits.retry_first_s, limits.retry_most_s, draw)
        self._good = limits.good_to_come_up - 1 if one_is_enough else 0  # in sequence
        self._bad = 0
        self._failures = 0  # probes since it was last up, or since the network changed
        self.is_up = False
        self.round_trip_s: float | None = None
        self.loss = 0.0
        self.answered_at: float | None = None
        self.next_probe = now
        self.last_problem = ""

    def answered(self, now: float, round_trip_s: float | None = None) -> None:
        """A request was answered. Without a round trip it was one whose duration says nothing, such as a large one."""
        self.answered_at = now
        if round_trip_s is not None:
            known = self.round_trip_s
            self.round_trip_s = round_trip_s if known is None else known + _GAIN * (round_trip_s - known)
            if self._limits.latency_s and round_trip_s > self._limits.latency_s:
                self.failed(now, f"the round trip takes {round_trip_s:.1f} s, more than {self._limits.latency_s:g} s")
                return
        self.loss -= _GAIN * self.loss
        self._good, self._bad = self._good + 1, 0
        if self._good >= self._limits.good_to_come_up:
            self.is_up, self._failures = True, 0
        if self.is_up:
            self.last_problem = ""
        self.next_probe = now + (self._limits.probe_s if self.is_up else self._limits.confirm_s)

    def failed(self, now: float, problem: str, *, is_certain: bool = False) -> None:
        """A request was not answered, or too late."""
        self.last_problem = problem
        self.loss += _GAIN * (1 - self.loss)
        self._good, self._bad = 0, self._bad + 1
        if is_certain or self._bad >= self._limits.bad_to_go_down:
            self.is_up = False
        floor = self._limits.confirm_s
        if self.is_up:
            self.next_probe = now + floor * (1 + self._draw())
        else:
            self.next_probe = now + max(floor, self._backoff.delay_s(self._failures))
            self._failures += 1

    def network_changed(self, now: float) -> None:
        """An address or a route has come or gone: what was measured may no longer hold. Probes within `confirm_s`."""
        self._failures = 0
        self.next_probe = min(self.next_probe, now + self._limits.confirm_s * self._draw())

    @property
    def is_doubtful(self) -> bool:
        """Whether the last request failed: a probe is better than sending something large."""
        return self._bad > 0
