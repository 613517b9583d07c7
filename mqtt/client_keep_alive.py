"""When a client pings, and when the server's answer is overdue (MQTT 5.0, 3.1.2.10)."""

from enum import Enum, auto
from typing import Final

PING_FACTOR: Final = 0.75  # of the keep alive, between PINGREQs; the server allows 1.5 of it [MQTT-3.1.2-22]


class Due(Enum):
    """What to do when a deadline has passed."""

    PING = auto()
    OVERDUE = auto()  # the answer to CONNECT or PINGREQ has not arrived


class KeepAlive:
    """The timers of one connection. A ping goes out every 0.75 x keep alive, whatever else is sent, so that clients
    that only send also notice a dead server. An answer is overdue if the server has shown no sign of life for the
    time-out."""

    __slots__ = ("_answer_by", "_answer_timeout_s", "_interval_s", "_last_received", "_ping_at")

    def __init__(self, connect_timeout_s: float, now: float) -> None:
        self._answer_by: float | None = now + connect_timeout_s
        self._answer_timeout_s = 0.0
        self._interval_s = 0.0
        self._last_received = now
        self._ping_at: float | None = None

    def connected(self, keep_alive_s: int, ping_timeout_s: float, now: float) -> None:
        """CONNACK has arrived; `keep_alive_s` of 0 means no pings."""
        self._answer_by, self._answer_timeout_s = None, ping_timeout_s
        self._interval_s = PING_FACTOR * keep_alive_s
        self._ping_at = now + self._interval_s if keep_alive_s else None

    def received(self, now: float) -> None:
        """Some bytes have arrived, or the peer has taken some that waited for it."""
        self._last_received = now

    def answered(self) -> None:
        """PINGRESP has arrived."""
        self._answer_by = None

    def deadline(self) -> float | None:
        """When to call :meth:`due`; None: never."""
        if self._answer_by is None:
            return self._ping_at
        return max(self._answer_by, self._last_received + self._answer_timeout_s)

    def due(self, now: float) -> Due | None:
        """What is due now; a ping that is returned counts as sent."""
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return None
        if self._answer_by is not None:
            return Due.OVERDUE
        self._answer_by = now + self._answer_timeout_s
        self._ping_at = now + self._interval_s
        return Due.PING
