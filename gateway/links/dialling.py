"""One gateway's link to one member's process: when it dials, and what it reports (Q6). Pure: the time comes in.

| state      | meaning                                  | then                                                        |
|------------|------------------------------------------|-------------------------------------------------------------|
| `down`     | there is no connection                   | it dials when it is time, or when it is to redial           |
| `dialling` | connecting, or connected without a hello | the right hello: `up`; anything else: `down`                |
| `up`       | the member's process has said who it is  | the connection ends, or too many pings have no pong: `down` |

**What is reported.** The link is heard when the hello, and then when anything, comes over it. It has ended when a link
that was up is lost. A redial is reported once, and `refused` only if a connection was refused after it was asked for,
by every address that the member has. All else that can happen, such as a firewall that drops packets, a handshake that
fails, an answer by another process, is `timeout`: it proves nothing.

A process that is being killed may lose its connections a moment before its listener. Then a connection is made and ends
without a hello. So until its time is over a redial is tried again.
"""

from typing import Final, Literal, NamedTuple

from gateway.cluster.life import LifeEvent, LinkEnded, LinkHeard, RedialResult
from schemas.leases import Claimant
from schemas.members import GatewayAddress

REDIAL_S: Final = 0.3
"""How long a redial may take."""

CONNECT_S: Final = 2.0
"""How long it may take to connect and to be greeted, at other times."""

UNANSWERED: Final = 10
"""Pings without an answer until a link counts as lost: the machine may be gone, so that nothing ends the connection."""

_AGAIN_S: Final = 0.02
_PAUSE_S: Final = (0.5, 5.0)
"""Between two attempts to dial: at first, and at most."""

State = Literal["down", "dialling", "up"]


class Connect(NamedTuple):
    """Connect to the member, and report what comes of it with this number."""

    attempt: int
    to: GatewayAddress


class Close(NamedTuple):
    attempt: int


class Ping(NamedTuple):
    attempt: int


DiallingEffect = Connect | Close | Ping | LifeEvent


class Dialling:
    """The link to `member`, which is at `to`. Methods return what to do, in order."""

    def __init__(self, member: Claimant, to: GatewayAddress, ping_s: float) -> None:
        self.member, self.to = member, to
        self._ping_s = ping_s
        self._state: State = "down"
        self._attempt = 0
        self._since = float("-inf")
        self._dial_at = float("-inf")
        self._pause_s = _PAUSE_S[0]
        self._redial_until: float | None = None
        self._pinged_at = float("-inf")
        self._unanswered = 0

    @property
    def state(self) -> State:
        return self._state

    @property
    def attempt(self) -> int:
        """The number of the last attempt."""
        return self._attempt

    def tick(self, now: float) -> list[DiallingEffect]:
        """Time has passed: to be called several times within `ping_s`, and within `REDIAL_S`."""
        effects: list[DiallingEffect] = []
        if self._redial_until is not None and now >= self._redial_until:
            effects += self._redialled("timeout")
        if self._state == "dialling" and now - self._since >= CONNECT_S:
            effects += [Close(self._attempt), *self._down(now)]
        if self._state == "down" and now >= self._dial_at:
            effects += self._dial(now)
        if self._state == "up" and now - self._pinged_at >= self._ping_s:
            self._pinged_at = now
            self._unanswered += 1
            if self._unanswered > UNANSWERED:
                effects += [Close(self._attempt), *self.lost(self._attempt, now)]
            else:
                effects.append(Ping(self._attempt))
        return effects

    def redial(self, now: float) -> list[DiallingEffect]:
        """Connect once, and report the result."""
        if self._redial_until is not None:
            return []
        self._redial_until = now + REDIAL_S
        if self._state == "up":
            return self._redialled("connected")
        return self._dial(now) if self._state == "down" else []

    def refused(self, attempt: int, now: float) -> list[DiallingEffect]:
        """Nobody listens there: each address has refused."""
        if attempt != self._attempt or self._state != "dialling":
            return []
        return [*self._redialled("refused"), *self._down(now)]

    def greeted(self, attempt: int, by: Claimant, now: float) -> list[DiallingEffect]:
        """A hello has come."""
        if attempt != self._attempt or self._state != "dialling":
            return []
        if by != self.member:
            return [Close(attempt), *self._redialled("timeout"), *self._down(now)]
        self._state, self._pinged_at, self._unanswered, self._pause_s = "up", now, 0, _PAUSE_S[0]
        return [LinkHeard(*self.member), *self._redialled("connected")]

    def heard(self, attempt: int) -> list[DiallingEffect]:
        """Something else has come."""
        if attempt != self._attempt or self._state != "up":
            return []
        self._unanswered = 0
        return [LinkHeard(*self.member)]

    def lost(self, attempt: int, now: float) -> list[DiallingEffect]:
        """The connection has ended, or could not be made for another reason than a refusal."""
        if attempt != self._attempt or self._state == "down":
            return []
        was_up = self._state == "up"
        effects = self._down(now)
        return [LinkEnded(*self.member), *effects] if was_up else effects

    def close(self) -> list[DiallingEffect]:
        """Nobody wants the link any more."""
        closing: list[DiallingEffect] = [] if self._state == "down" else [Close(self._attempt)]
        self._state, self._dial_at = "down", float("inf")
        return [*closing, *self._redialled("timeout")]

    def _dial(self, now: float) -> list[DiallingEffect]:
        self._state, self._since, self._attempt = "dialling", now, self._attempt + 1
        return [Connect(self._attempt, self.to)]

    def _down(self, now: float) -> list[DiallingEffect]:
        self._state = "down"
        if self._redial_until is not None:
            self._dial_at = now + _AGAIN_S
        else:
            self._dial_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _PAUSE_S[1])
        return []

    def _redialled(self, result: Literal["connected", "refused", "timeout"]) -> list[DiallingEffect]:
        if self._redial_until is None:
            return []
        self._redial_until = None
        return [RedialResult(self.member.name, result, self.member.boot)]
