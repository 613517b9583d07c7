"""How fast one client may publish: messages and payload bytes per second, each with a burst (Q12, R9)."""

from gateway.policy.bucket import TokenBucket
from schemas.policy_settings import MessageRateSettings


class MessageRate:
    """The two buckets of one client, kept across its connections. Pure: see :class:`TokenBucket`."""

    __slots__ = ("_bytes", "_messages")

    def __init__(self, settings: MessageRateSettings) -> None:
        self._messages = TokenBucket(settings.messages_per_s, settings.messages_burst)
        self._bytes = TokenBucket(settings.bytes_per_s, settings.bytes_burst)

    def admits(self, now: float, n_bytes: int) -> bool:
        """Whether a message of this size is within the rate; if so, it is counted."""
        if not self._messages.has(now) or not self._bytes.has(now, n_bytes):
            return False
        self.count(now, n_bytes)
        return True

    def count(self, now: float, n_bytes: int) -> None:
        """Counts a message, even beyond the rate."""
        self._messages.take(now)
        self._bytes.take(now, n_bytes)

    def owed_s(self, now: float) -> float:
        """Seconds until the client is within its rate again; 0 or less if it is."""
        return max(self._messages.owed_s(now), self._bytes.owed_s(now))

    def is_full(self, now: float) -> bool:
        return self._messages.is_full(now) and self._bytes.is_full(now)
