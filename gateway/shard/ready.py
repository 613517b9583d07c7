"""Sessions that may have something to send: filled while records and packets are applied, sent by the next flush."""

from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.shard.session import Session


class ReadySessions:
    """Of all shards of this process, each with what sends; and what these shards say to one another."""

    def __init__(self) -> None:
        self._ready: dict[Session, Callable[[Session], None]] = {}
        self._posted: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._is_flushing = False
        self._is_held = False

    def hold(self) -> None:
        """Nothing is sent until `resume`: this process may have lost shards without knowing it."""
        self._is_held = True

    def resume(self) -> None:
        """Sends what has waited."""
        self._is_held = False
        self.flush()

    def post(self, receive: Callable[[Any], None], message: object) -> bool:
        """`receive` gets the message in the next flush, after those posted before; True if it is the first."""
        self._posted.append((receive, message))
        return len(self._posted) == 1

    def add(self, session: Session, pump: Callable[[Session], None]) -> None:
        """`pump` sends what the session's client takes now."""
        self._ready[session] = pump

    def flush(self) -> None:
        """Sends; also what becomes ready meanwhile."""
        if self._is_flushing or self._is_held:  # the one that runs goes on to the end
            return
        ready, posted, self._is_flushing = self._ready, self._posted, True
        try:
            while ready or posted:
                while posted:
                    receive, message = posted.popleft()
                    receive(message)
                if ready:
                    session, pump = ready.popitem()
                    pump(session)
        finally:
            self._is_flushing = False
