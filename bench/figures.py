"""The figures of a run: printed as they come, and written as flat JSON."""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

JSON, TIMES, CURVES = "bench.json", "bench_times.json", "bench_curves.json"
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
POINTS_A_DECADE, DECADES = 40, 6

Curve = list[tuple[float, float]]
"""Milliseconds, and the share of messages that took longer."""


def percentile(ordered: list[float], share: float) -> float:
    """The value that `share` of the `ordered` ones do not exceed; raises IndexError if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def curve(ordered: list[float]) -> Curve:
    """Of the `ordered` latencies, as many points as a picture can show: evenly in the logarithm of the share."""
    shares = (10 ** (-step / POINTS_A_DECADE) for step in range(POINTS_A_DECADE * DECADES))
    ranks = sorted({min(len(ordered) - 1, int(len(ordered) * (1 - share))) for share in shares})
    return [(ordered[rank], 1 - (rank + 0.5) / len(ordered)) for rank in ranks]


class Figures:
    """Flat keys, when each was measured, and for the plot the curves of latencies."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.values: dict[str, float] = {}
        self.times: dict[str, str] = {}
        self.curves: dict[str, Curve] = {}
        self._clock = clock

    def resume(self, directory: Path) -> None:
        """Take over what earlier runs have written there; what is measured from now on takes its place."""
        self.values |= _read(directory / JSON)
        self.times |= _read(directory / TIMES)
        self.curves |= _read(directory / CURVES)

    def add(self, name: str, value: float) -> None:
        self._note(name, value)
        sys.stdout.write(f"  {name:40} {value:g}\n")
        sys.stdout.flush()

    def latencies(self, name: str, milliseconds: list[float], suffix: str = "") -> None:
        """`<name>_p50_ms<suffix>` … `_max_ms`, and the number measured."""
        ordered = sorted(milliseconds)
        if not ordered:
            raise RuntimeError(f"{name}: nothing was received")
        self.curves[name + suffix] = curve(ordered)
        for label, share in PERCENTILES.items():
            self.add(f"{name}_{label}_ms{suffix}", round(percentile(ordered, share), 2))
        self.add(f"{name}_max_ms{suffix}", round(ordered[-1], 2))
        self._note(f"{name}_measured{suffix}", len(ordered))

    def silences(self, name: str, milliseconds: list[float]) -> None:
        """`<name>_silence_p50_ms` and, the longest, `<name>_silence_ms`."""
        ordered = sorted(milliseconds)
        self.add(f"{name}_silence_p50_ms", round(percentile(ordered, 0.5), 1))
        self.add(f"{name}_silence_ms", round(ordered[-1], 1))

    def write(self, directory: Path) -> None:
        """`bench.json`; `bench_times.json`: by the same keys, when each was measured (UTC); `bench_curves.json`."""
        directory.mkdir(parents=True, exist_ok=True)
        for file, content, indent in ((JSON, self.values, 2), (TIMES, self.times, 2), (CURVES, self.curves, None)):
            (directory / file).write_text(json.dumps(content, indent=indent, sort_keys=True) + "\n")

    def _note(self, name: str, value: float) -> None:
        self.values[name] = value
        self.times[name] = self._clock().isoformat(timespec="seconds")


def _read(path: Path) -> Mapping[str, Any]:
    """What an earlier run has written; nothing if there was none, or if it was stopped while it wrote."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}
