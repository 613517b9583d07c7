"""How many messages ahead to announce an administrative message, from how far the two adapters are apart (S4). Pure.

The lag of a source stream is measured whenever a beat of the other adapter comes: its position against the own one. The
largest of the last minute counts, which is at least the p99.9. A beat is up to 0.2 s old, so the lag is rather
overestimated. The rate is that of the last ten seconds.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from feeds.registry_records import StreamPosition
from feeds.synchronise import lead_of

LAG_WINDOW_S: Final = 60.0
RATE_WINDOW_S: Final = 10.0
_BUCKET_S: Final = 1.0


class Lags:
    """Of the source streams that beats name."""

    def __init__(self) -> None:
        self._lags: dict[str, deque[tuple[float, int]]] = {}  # greatest of each second, in messages
        self._own: dict[str, deque[tuple[float, int]]] = {}
        self._round_trip_s = 0.0
        self.other_last: dict[str, int] = {}

    def own_beat(self, positions: Mapping[str, StreamPosition], now: float) -> None:
        """The adapter wrote a beat."""
        self._own = {stream: self._own.get(stream, deque()) for stream in positions}
        for stream, position in positions.items():
            seen = self._own[stream]
            seen.append((now, position.sequence))
            while now - seen[0][0] > RATE_WINDOW_S and len(seen) > 2:
                seen.popleft()

    def round_trip(self, taken_s: float) -> None:
        """A beat was read back after so long. The greatest counts, and is forgotten slowly."""
        self._round_trip_s = max(taken_s, self._round_trip_s * 0.99)

    def other_beat(self, positions: Mapping[str, StreamPosition], last: Mapping[str, int], now: float) -> None:
        """A beat of the adapter in the other slot came; `last`: the own highest numbers."""
        self.other_last = {stream: position.sequence for stream, position in positions.items()}
        self._lags = {stream: self._lags.get(stream, deque()) for stream in positions}
        for stream, position in positions.items():
            lag, seen = abs(last.get(stream, position.sequence) - position.sequence), self._lags[stream]
            if seen and now - seen[-1][0] < _BUCKET_S:
                seen[-1] = seen[-1][0], max(lag, seen[-1][1])
            else:
                seen.append((now, lag))
            while now - seen[0][0] > LAG_WINDOW_S:
                seen.popleft()

    def lead(self, stream: str) -> int:
        """How many messages ahead."""
        lag = max((lag for _, lag in self._lags.get(stream, ())), default=0)
        rate = self._rate(stream)
        if not rate:
            return lag + 1
        # There and back: the announcement is read back, and so is the answer.
        return lead_of(lag / rate, 2 * self._round_trip_s, rate) + 1

    def _rate(self, stream: str) -> float:
        seen = self._own.get(stream)
        if not seen or seen[-1][0] == seen[0][0]:
            return 0.0
        return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
