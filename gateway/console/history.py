"""The last minutes of a gateway's counters, for plots and percentiles. Pure: samples come in with their time.

A sample holds running totals, so a rate is a difference of two, and a sample that is missing costs resolution only.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

INTERVAL_S = 2.0
SAMPLES = 151
"""Five minutes."""

Buckets = tuple[tuple[float, float], ...]
"""A histogram: upper bounds in seconds, ascending, each with the number of observations up to it."""


class Sample(NamedTuple):
    """`at`: monotonic seconds. Running totals: PUBLISH packets by QoS, bytes, refusals, processor seconds. Values of
    the moment: connections, records in flight to Kafka. `stages`: histograms by stage."""

    at: float
    received: tuple[int, int, int]
    sent: tuple[int, int, int]
    bytes_received: int
    bytes_sent: int
    refused: int
    cpu_s: float
    connections: int
    in_flight: int
    stages: dict[str, Buckets]


class Series(NamedTuple):
    """Values with their times; `latest` is 0 if there are none."""

    times: Sequence[float]
    values: Sequence[float]

    @property
    def latest(self) -> float:
        return self.values[-1] if self.values else 0.0


class Percentiles(NamedTuple):
    """Of `observed` observations in the window. `p50` and `p99` are upper bounds in seconds: bounds of buckets,
    infinite above the last; None without observations."""

    observed: int
    p50: float | None
    p99: float | None


class History:
    """A ring of at most `most` samples, the oldest first."""

    def __init__(self, most: int = SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def span_s(self) -> float:
        """The time from the oldest to the newest sample."""
        return self._samples[-1].at - self._samples[0].at if self._samples else 0.0

    def add(self, sample: Sample) -> None:
        """Takes a sample; one that is not later than the newest is left out."""
        if not self._samples or sample.at > self._samples[-1].at:
            self._samples.append(sample)

    def rates(self, total: Callable[[Sample], float]) -> Series:
        """Per second, between neighbouring samples; never negative."""
        samples = list(self._samples)
        pairs = list(pairwise(samples))
        values = [max(0.0, total(later) - total(earlier)) / (later.at - earlier.at) for earlier, later in pairs]
        return Series([later.at for _, later in pairs], values)

    def values(self, value: Callable[[Sample], float]) -> Series:
        return Series([sample.at for sample in self._samples], [value(sample) for sample in self._samples])

    def percentiles(self, stage: str) -> Percentiles:
        """Of what was observed between the oldest sample and the newest."""
        if not self._samples:
            return Percentiles(0, None, None)
        before, after = self._samples[0].stages.get(stage, ()), self._samples[-1].stages.get(stage, ())
        earlier = dict(before)
        counted = [(bound, count - earlier.get(bound, 0.0)) for bound, count in after]
        total = int(counted[-1][1]) if counted else 0
        if total <= 0:
            return Percentiles(0, None, None)
        return Percentiles(total, _bound(counted, total * 0.5), _bound(counted, total * 0.99))


def _bound(counted: Sequence[tuple[float, float]], wanted: float) -> float:
    return next((bound for bound, count in counted if count >= wanted), float("inf"))
