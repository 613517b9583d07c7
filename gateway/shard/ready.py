"""Sessions that may have something to send: filled while records and packets are applied, sent by the next flush."""

from collections.abc import Callable

from gateway.shard.session import Session


class ReadySessions:
    """Of all shards of this process, each with what sends."""

    def __init__(self) -> None:
        self._ready: dict[Session, Callable[[Session], None]] = {}

    def add(self, session: Session, pump: Callable[[Session], None]) -> None:
        """`pump` sends what the session's client takes now."""
        self._ready[session] = pump

    def flush(self) -> None:
        """Sends; also what becomes ready meanwhile."""
        ready = self._ready
        while ready:
            session, pump = ready.popitem()
            pump(session)
