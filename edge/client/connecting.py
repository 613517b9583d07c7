"""The two-phase connect as a state machine: which step is next, without clock, socket or randomness (G3, G10).

First connect, orderly reconnect, loss and failover are the same procedure, a *round*. Its sources are the access points
in order, or else the application's list of connect points:

    ASK    an access point for connect points (phase one); if it fails, go on with the next source
    TRY    the connect points of the source, in order, and all of them again after a pause, `tries` times in all
           (phase two); then go on with the next source
    last   those of the last answer, if no access point has answered in this round: an access point may be switched off
           while gateways go on (G12)

A gateway may send the client to another one (MQTT 5.0, 4.11): that is tried next, at most HOPS_MAX times until a
connection has lasted. If that fails, the round goes on where it was.

A round that ends without a connection gives one error that lists every attempt (G3). After a pause the next one begins,
for ever: only the caller ends it. Pauses have full jitter, and their bound grows until a connection has lasted.

WAIT --WAITED--> ASK | TRY      ASK --ANSWERED--> TRY       ASK --FAILED--> ASK | TRY | WAIT
TRY --CONNECTED--> CONNECTED    TRY --FAILED--> TRY | WAIT | ASK    CONNECTED --LOST--> WAIT    TRY --SENT--> TRY
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from edge.client.connect_points import ConnectPoint
from edge.client.errors import Attempt, NotReachable
from edge.reconnect import FullJitter
from mqtt.errors import LocalProtocolError

A = TypeVar("A")
TRIES_MIN: Final = 2
HOPS_MAX: Final = 3
REASON_MAX: Final = 300  # characters kept of a reason, which a server may have written


@dataclass(frozen=True)
class Wait:
    """Wait; then call `waited`."""

    seconds: float


@dataclass(frozen=True)
class Ask(Generic[A]):
    """Ask an access point; then call `answered` or `failed`."""

    access_point: A


@dataclass(frozen=True)
class Try:
    """Connect; then call `connected` or `failed`."""

    point: ConnectPoint


@dataclass(frozen=True)
class Connected:
    """Connected; when the connection has ended, call `lost`."""

    point: ConnectPoint


Step: TypeAlias = Wait | Ask[A] | Try | Connected


class Connecting(Generic[A]):
    """`step` is what to do now. Exactly one of `access_points` and `points` has entries; `tries` is 2 or more."""

    def __init__(
        self, access_points: Sequence[A], points: Sequence[ConnectPoint], *, tries: int, backoff: FullJitter
    ) -> None:
        if bool(access_points) is bool(points):
            raise ValueError("give either access points or connect points")
        if tries < TRIES_MIN:
            raise ValueError(f"each connect point is tried at least {TRIES_MIN} times, not {tries}")
        self._access_points, self._tries, self._backoff = list(access_points), tries, backoff
        self._known = list(points)  # of the application, or of the last answer
        self._pauses = self._hops = 0  # since a connection has lasted
        self._after_hop: Step[A] | None = None
        self.step: Step[A] = Wait(0.0)
        self._begin_round()

    # -- what has happened ---------------------------------------------------------------------------------------------

    def waited(self) -> None:
        """The pause is over."""
        self._expect(Wait)
        self.step = self._after_wait

    def answered(self, points: Sequence[ConnectPoint]) -> None:
        """The access point has named these connect points, at least one."""
        self._expect(Ask)
        self._known, self._has_answer = list(points), True
        self._begin_points()

    def failed(self, reason: str, sent_to: ConnectPoint | None = None) -> NotReachable | None:
        """The step has failed; returns the error of the round if that was its last step. `sent_to`: the gateway has
        refused the client, and named another one."""
        step = self.step
        self._expect(Ask, Try)
        target = step.access_point if isinstance(step, Ask) else step.point if isinstance(step, Try) else None
        self._attempts.append(Attempt(str(target), " ".join(reason[: 2 * REASON_MAX].split())[:REASON_MAX]))
        if isinstance(step, Ask):
            return self._next_source()
        if sent_to is not None and self._hops < HOPS_MAX:
            self._hops += 1
            self.step = Try(sent_to)
            return None
        if self._after_hop is not None:
            self.step, self._after_hop = self._after_hop, None
            return None
        return self._next_point()

    def connected(self) -> None:
        """The gateway has accepted the connection."""
        step = self.step
        if not isinstance(step, Try):
            raise self._unexpected()
        self.step = Connected(step.point)

    def lost(self, *, has_lasted: bool, sent_to: ConnectPoint | None = None) -> None:
        """The connection has ended. If it `has_lasted`, the pauses are short again. `sent_to`: the gateway has named
        another one."""
        self._expect(Connected)
        if has_lasted:
            self._pauses = self._hops = 0
        self._begin_round()
        if sent_to is not None and self._hops < HOPS_MAX:
            self._hops += 1
            self._after_hop = self.step
            self._wait_before(Try(sent_to))
        else:
            self._wait_before(self.step)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        self._attempts: list[Attempt] = []
        self._after_hop = None
        self._source = 0
        self._has_answer = False
        if self._access_points:
            self.step = Ask(self._access_points[0])
        else:
            self._begin_points()

    def _begin_points(self) -> None:
        self._pass, self._position = 1, 0
        self.step = Try(self._known[0])

    def _next_point(self) -> NotReachable | None:
        self._position += 1
        if self._position < len(self._known):
            self.step = Try(self._known[self._position])
        elif self._pass < self._tries:
            self._pass, self._position = self._pass + 1, 0
            self._wait_before(Try(self._known[0]))
        else:
            return self._next_source()
        return None

    def _next_source(self) -> NotReachable | None:
        self._source += 1
        if self._source < len(self._access_points):
            self.step = Ask(self._access_points[self._source])
            return None
        if self._access_points and self._known and not self._has_answer:
            self._has_answer = True
            self._begin_points()
            return None
        error = NotReachable(self._attempts)
        self._hops = 0
        self._begin_round()
        self._wait_before(self.step)
        return error

    def _wait_before(self, step: Step[A]) -> None:
        self._after_wait = step
        self.step = Wait(self._backoff.delay_s(self._pauses))
        self._pauses += 1

    def _expect(self, *kinds: type) -> None:
        if not isinstance(self.step, kinds):
            raise self._unexpected()

    def _unexpected(self) -> LocalProtocolError:
        return LocalProtocolError(f"this cannot happen in the step {self.step}")
