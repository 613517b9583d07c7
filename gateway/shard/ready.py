"""Sessions that may have something to send: filled while records and packets are applied, sent by the next flush."""

from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.shard.hold import Hold
from gateway.shard.session import Session


class ReadySessions:
    """Of all shards of this process, each with what sends; and what these shards say to one another. While `hold` is
    on they wait."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._ready: dict[Session, Callable[[Session], None]] = {}
        self._posted: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._is_flushing = False

    def post(self, receive: Callable[[Any], None], message: object) -> bool:
        """`receive` gets the message in the next flush, after those posted before; True if it is the first."""
        self._posted.append((receive, message))
        return len(self._posted) == 1

    def add(self, session: Session, pump: Callable[[Session], None]) -> None:
        """`pump` sends what the session's client takes now."""
        self._ready[session] = pump

    def flush(self) -> None:
        """Sends; also what becomes ready meanwhile."""
        if self._is_flushing:  # the one that runs goes on to the end
            return
        if self._hold.is_on:
            self._hold.after(self.flush)
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
