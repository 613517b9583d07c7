"""Token buckets (RFC 2697, section 3, with one rate): a burst at once, and a sustained rate per second.

Pure: `now` is passed in, in seconds of a monotonic clock. A bucket is one number: the time at which it is full again.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

_SLACK_S = 1e-6
"""Tolerance for the rounding error of adding many small times."""

_SWEEP_FROM = 1_000
_MOST = 100_000


class TokenBucket:
    """Holds `burst` tokens and gains `per_s` per second; a `per_s` of 0 means no limit."""

    __slots__ = ("_burst", "_burst_s", "_full_at", "_token_s")

    def __init__(self, per_s: float, burst: float) -> None:
        self._token_s = 1 / per_s if per_s else 0.0
        self._burst = burst
        self._burst_s = burst * self._token_s
        self._full_at = 0.0

    def has(self, now: float, tokens: float = 1.0) -> bool:
        """Whether this many tokens are available. A request for more than `burst` succeeds when the bucket is full."""
        needed_s = min(tokens, self._burst) * self._token_s
        return self._full_at - now <= self._burst_s - needed_s + _SLACK_S

    def take(self, now: float, tokens: float = 1.0) -> None:
        """Takes the tokens, available or not; missing ones become debt."""
        self._full_at = max(self._full_at, now) + tokens * self._token_s

    def owed_s(self, now: float) -> float:
        """Seconds until the debt is paid; 0 or less if there is none."""
        return self._full_at - now - self._burst_s

    def is_full(self, now: float) -> bool:
        return self._full_at <= now


class Fillable(Protocol):
    def is_full(self, now: float) -> bool: ...


B = TypeVar("B", bound=Fillable)


class BucketsByClient(Generic[B]):
    """The buckets of clients, connected or not, so that a client that reconnects keeps its debt. A full bucket equals a
    new one and is forgotten once nobody holds it. Of more than 100,000 others, the oldest are dropped."""

    def __init__(self, make: Callable[[], B]) -> None:
        self._make = make
        self._buckets: dict[str, B] = {}
        self._held: WeakValueDictionary[str, object] = WeakValueDictionary()
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, client: str, now: float) -> B:
        bucket = self._buckets.get(client)
        if bucket is None:
            if len(self._buckets) >= self._sweep_at:
                self._sweep(now)
            bucket = self._buckets[client] = self._make()
        return bucket

    def hold(self, client: str, holder: object) -> None:
        """Keeps the client's bucket at least while `holder`, which takes from it, is alive."""
        self._held[client] = holder

    def _sweep(self, now: float) -> None:
        kept = {c: bucket for c, bucket in self._buckets.items() if c in self._held or not bucket.is_full(now)}
        self._buckets = kept
        for client in list(self._buckets)[: max(0, len(self._buckets) - _MOST // 2)]:
            del self._buckets[client]
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._buckets))
