"""The figures of a run: printed as they come, written as flat JSON and as a plot."""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

JSON, TIMES, CURVES, PLOT = "bench.json", "bench_times.json", "bench_curves.json", "bench.png"
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
AIMS = {
    "agent_drain_per_s": (1_000, True),
    "agent_rss_mb": (80, False),
    "agent_idle_core": (0.01, False),
    "agent_start_small_s": (3, False),
}
"""Figures of the edge with an aim: the aim, and whether more is better."""
OF_EDGE = "connect_points"
"""How the names of the edge's latencies begin."""
BACK = {"gateway_back_ms": ":", "client_back_ms": "--"}
"""When a gateway that was killed is back, when its client has a message acknowledged; how they are drawn."""
REPLACING = ("failover_", "replace")
"""How the names of latencies begin that belong to a router's end."""
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

    def plot(self, directory: Path) -> None:
        """`bench.png`."""
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        figure, ((paths, replacing), (gateway, ratios), (edge, aims)) = plt.subplots(
            3, 2, figsize=(15, 16), layout="constrained"
        )
        of_routers = {name: points for name, points in self.curves.items() if name.startswith(REPLACING)}
        of_edge = {name: points for name, points in self.curves.items() if name.startswith(OF_EDGE)}
        others = self.curves.keys() - of_routers.keys() - of_edge.keys()
        _draw(paths, {name: self.curves[name] for name in others})
        paths.set_title("Latency of first copies and of whole paths")
        _draw(replacing, of_routers)
        replacing.set_title("While routers are replaced, beside quiet minutes and taken spare time")
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
        _draw(edge, of_edge)
        for name in BACK.keys() & self.values.keys():
            edge.axvline(self.values[name], color="black", linestyle=BACK[name], label=f"{name}, median")
            edge.legend(fontsize=8)
        edge.set_title("Edge: the access point, beside a bare server; a gateway killed, and its client")
        draw_aims(aims, self.values)
        figure.suptitle("Waystation")
        figure.savefig(directory / PLOT, dpi=110)
        plt.close(figure)


def _draw(axes: Any, curves: Mapping[str, Curve]) -> None:
    for name, points in sorted(curves.items()):
        axes.plot(*zip(*points, strict=True), label=name)
    if curves:
        axes.set(xscale="log", yscale="log")
        axes.legend(fontsize=8)
    axes.set(xlabel="latency, ms", ylabel="share of messages slower than that")
    axes.grid(True, which="both", alpha=0.3)


def draw_aims(axes: Any, values: Mapping[str, float]) -> None:
    """How many times as good as its aim each figure of the edge is."""
    found = {name: aim for name, aim in AIMS.items() if values.get(name, 0) > 0}
    times = [
        values[name] / aim if is_more_better else aim / values[name] for name, (aim, is_more_better) in found.items()
    ]
    bars = axes.barh([f"{name}\naim {aim:g}" for name, (aim, _) in found.items()], times)
    axes.bar_label(bars, [f"{values[name]:g}" for name in found], padding=3)
    axes.axvline(1, color="black", linewidth=1, linestyle="--")
    axes.set(xlabel="times as good as the aim (dashed)", xscale="log", xlim=(0.1, 3 * max([1.0, *times])))
    axes.set_title("Edge: figures with an aim")


def _read(path: Path) -> Mapping[str, Any]:
    """What an earlier run has written; nothing if there was none, or if it was stopped while it wrote."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}
