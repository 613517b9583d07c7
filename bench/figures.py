"""The figures of a run: printed as they come, written as flat JSON and as a plot."""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

JSON, TIMES, PLOT = "bench.json", "bench_times.json", "bench.png"
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
RATIOS = {
    "routing_vs_passthrough_": "bare: as Spark and Kafka come",
    "routing_vs_tuned_passthrough_": "with the router's producer",
}
RATIO_AIM = 0.85
PER_CPU = {
    "gateway_in_per_cpu_s": ("in, 50 × 20", 60_000),
    "gateway_in_2000_per_cpu_s": ("in, 2,000 × 1", 20_000),
    "gateway_out_per_cpu_s": ("out, 50 × 20", 40_000),
    "gateway_out_2000_per_cpu_s": ("out, 2,000 × 1", 20_000),
}
"""Figures of the gateway: what they are (connections × in flight), and the aim."""


def percentile(ordered: list[float], share: float) -> float:
    """The value that `share` of the `ordered` ones do not exceed; raises IndexError if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def utc_now() -> datetime:
    return datetime.now(UTC)


class Figures:
    """Flat keys, and when each was measured; latencies of each path that this run measures are kept for the plot."""

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self.values: dict[str, float] = {}
        self.times: dict[str, str] = {}
        self.series: dict[str, list[float]] = {}
        self._clock = clock

    def resume(self, directory: Path) -> None:
        """Take over what earlier runs have written there; what is measured from now on takes its place."""
        self.values |= _read(directory / JSON)
        self.times |= _read(directory / TIMES)

    def add(self, name: str, value: float) -> None:
        self._note(name, value)
        sys.stdout.write(f"  {name:40} {value:g}\n")
        sys.stdout.flush()

    def latencies(self, name: str, milliseconds: list[float], suffix: str = "") -> None:
        """`<name>_p50_ms<suffix>` … `_max_ms`, and the number measured."""
        ordered = sorted(milliseconds)
        if not ordered:
            raise RuntimeError(f"{name}: nothing was received")
        self.series[name + suffix] = ordered
        for label, share in PERCENTILES.items():
            self.add(f"{name}_{label}_ms{suffix}", round(percentile(ordered, share), 2))
        self.add(f"{name}_max_ms{suffix}", round(ordered[-1], 2))
        self._note(f"{name}_measured{suffix}", len(ordered))

    def write(self, directory: Path) -> None:
        """`bench.json`, and `bench_times.json`: by the same keys, when each was measured (UTC)."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / JSON).write_text(json.dumps(self.values, indent=2, sort_keys=True) + "\n")
        (directory / TIMES).write_text(json.dumps(self.times, indent=2, sort_keys=True) + "\n")

    def plot(self, directory: Path) -> None:
        """`bench.png`."""
        self._plot(directory / PLOT)

    def _note(self, name: str, value: float) -> None:
        self.values[name] = value
        self.times[name] = self._clock().isoformat(timespec="seconds")

    def _plot(self, path: Path) -> None:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        figure, (paths, gateway, ratios) = plt.subplots(
            1, 3, figsize=(16, 5), layout="constrained", width_ratios=(2, 1, 1)
        )
        for name, ordered in self.series.items():
            shares = [1 - (index + 0.5) / len(ordered) for index in range(len(ordered))]
            paths.plot(ordered, shares, label=name)
        if self.series:
            paths.set(xscale="log", yscale="log")
            paths.legend(fontsize=8)
        paths.set(xlabel="latency, ms", ylabel="share of messages slower than that")
        paths.grid(True, which="both", alpha=0.3)
        paths.set_title("Latency of first copies and of whole paths")
        found = {name: self.values[name] for name in PER_CPU if name in self.values}
        gateway.bar([PER_CPU[name][0] for name in found], list(found.values()))
        for at, name in enumerate(found):
            gateway.plot([at - 0.4, at + 0.4], [PER_CPU[name][1]] * 2, color="black", linestyle="--", linewidth=1)
        gateway.tick_params(axis="x", rotation=20)
        gateway.set(ylabel="messages a CPU second (dashed: aim)")
        gateway.set_title("Gateway, QoS 1, 256 bytes")
        for place, (prefix, label) in enumerate(RATIOS.items()):
            shown = {name.removeprefix(prefix): value for name, value in self.values.items() if name.startswith(prefix)}
            groups = range(len(shown))
            ratios.bar([group + 0.4 * place for group in groups], list(shown.values()), 0.4, label=label)
            ratios.set_xticks([group + 0.2 for group in groups], list(shown))
        ratios.axhline(RATIO_AIM, color="black", linewidth=1, linestyle="--", label=f"aim {RATIO_AIM}")
        ratios.set(xlabel="routes", ylabel="routing / pass-through, records a second", ylim=(0, 1.3))
        ratios.legend(fontsize=8)
        ratios.set_title("Throughput")
        figure.suptitle("Waystation")
        figure.savefig(path, dpi=110)
        plt.close(figure)


def _read(path: Path) -> Mapping[str, Any]:
    """What an earlier run has written; nothing if there was none, or if it was stopped while it wrote."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}
