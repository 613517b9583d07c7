"""What messages cost a process in CPU time, measured so that the neighbours on a shared machine count little."""

import time
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import psutil

WINDOW_S = 1.0


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
