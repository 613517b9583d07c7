"""What a load on one gateway is, and what it measures: the gateway's CPU time for messages, and percentiles."""

import time
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import psutil

from bench.figures import percentile

WINDOW_S = 1.0


class Load(NamedTuple):
    """Load on the gateway with this `port` and `pid`: so many `connections`, `window` messages of each on their way,
    for `seconds` after the first `warm_s`; or new connections at `rate` a second. `bootstrap` to `lead_s`: where
    instructions are written, as a router would, and when routes take effect."""

    port: int = 0
    pid: int = 0
    connections: int = 1
    window: int = 1
    warm_s: float = 3.0
    seconds: float = 10.0
    rate: float = 1000.0
    bootstrap: str = ""
    prefix: str = ""
    shards: int = 0
    lead_s: float = 0.0


class Sample(NamedTuple):
    messages: int
    cpu_s: float
    at: float


class Usage:
    """What the gateway's process uses for messages, second by second: of its CPU seconds some are slow, when others on
    the machine have the core's other half or its cache."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._samples: list[Sample] = []

    def note(self, messages: int) -> None:
        """So many messages are through now; not more often than every WINDOW_S."""
        now = time.monotonic()
        if not self._samples or now - self._samples[-1].at >= WINDOW_S:
            times = self._process.cpu_times()
            self._samples.append(Sample(messages, times.user + times.system, now))

    def answer(self) -> dict[str, float]:
        """Over all that was noted; `per_cpu_s` is the median of the windows, `best_per_cpu_s` the best of them."""
        windows = list(pairwise(self._samples))
        rates = [(b.messages - a.messages) / max(b.cpu_s - a.cpu_s, 1e-9) for a, b in windows]
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at - first.at
        return {
            "messages": last.messages - first.messages,
            "per_s": (last.messages - first.messages) / seconds,
            "per_cpu_s": median(rates),
            "best_per_cpu_s": max(rates),
            "cores": (last.cpu_s - first.cpu_s) / seconds,
        }


def tails(milliseconds: list[float], prefix: str = "") -> dict[str, float]:
    """`<prefix>p50_ms` and `<prefix>p99_ms`; raises IndexError if there are none."""
    ordered = sorted(milliseconds)
    return {f"{prefix}p50_ms": percentile(ordered, 0.5), f"{prefix}p99_ms": percentile(ordered, 0.99)}
