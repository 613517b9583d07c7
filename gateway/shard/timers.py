"""What is due of sessions that are not connected: wills after their delay, the end after expiry (MQTT 5.0, 3.1.2.11.2,
3.1.3.2.2)."""

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from gateway.shard.session import Session

Kind = Literal["will", "expiry"]
_KINDS: Final[tuple[Kind, ...]] = ("will", "expiry")


class SessionTimers:
    """One timer of each kind for a client; nothing happens to a session that is connected when its timer ends."""

    def __init__(self) -> None:
        self._timers: dict[tuple[str, Kind], asyncio.TimerHandle] = {}

    def after(self, delay_s: float, session: Session, kind: Kind, action: Callable[[Session], None]) -> None:
        """Does `action` with the session after `delay_s`, at once if that is not above 0."""

        def due() -> None:
            self._timers.pop((session.client, kind), None)
            if session.link is None:
                action(session)

        if delay_s <= 0:
            due()
            return
        self._timers[session.client, kind] = asyncio.get_running_loop().call_later(delay_s, due)

    def cancel(self, client: str) -> None:
        """Those of a client."""
        for kind in _KINDS:
            timer = self._timers.pop((client, kind), None)
            if timer is not None:
                timer.cancel()

    def cancel_all(self) -> None:
        """Wills whose delay is not over, and sessions that expire, stay in the session log."""
        for timer in self._timers.values():
            timer.cancel()
