"""The picture of a run: one panel for each kind of figure that was measured; a kind without figures has none."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PLOT = "bench.png"
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
CLUSTER_AIMS = {
    "takeover_owner_ms": (100, False),
    "takeover_client_ms": (500, False),
    "takeover_others_ms": (20, False),
    "takeover_stopped_ms": (2_000, False),
    "takeover_20000_sessions_ms": (1_000, False),
    "move_silence_ms": (50, False),
    "handover_connections_kept": (1_000, True),
    "read_back_added_ms": (3, False),
    "standby_core": (0.25, False),
    "gateways_2_vs_1_in": (1.6, True),
    "gateways_2_vs_1_cpu": (1.1, False),
}
"""Figures of a site of gateways with an aim, likewise. On two cores, which broker and load need too, the throughput of
two gateways says little; then the processor time a message counts."""
OF_EDGE = "connect_points"
"""How the names of the edge's latencies begin."""
BACK = {"gateway_back_ms": ":", "client_back_ms": "--"}
"""When a gateway that was killed is back, when its client has a message acknowledged; how they are drawn."""
REPLACING = ("failover_", "replace")
"""How the names of latencies begin that belong to a router's end."""

Values = Mapping[str, float]
Curves = Mapping[str, list[tuple[float, float]]]


class _Panel(NamedTuple):
    title: str
    draw: Callable[[Any], None]


def plot(values: Values, curves: Curves, directory: Path) -> bool:
    """Writes `bench.png`; False if there is nothing to show."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = _panels(values, curves)
    if not panels:
        return False
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(7.5 * columns, 5.3 * rows), layout="constrained", squeeze=False)
    places = list(axes.flat)
    for panel, place in zip(panels, places, strict=False):
        panel.draw(place)
        place.set_title(panel.title)
    for place in places[len(panels) :]:
        place.set_axis_off()
    figure.suptitle("Waystation")
    figure.savefig(directory / PLOT, dpi=110)
    plt.close(figure)
    return True


def _panels(values: Values, curves: Curves) -> list[_Panel]:
    of_routers = {name: points for name, points in curves.items() if name.startswith(REPLACING)}
    of_edge = {name: points for name, points in curves.items() if name.startswith(OF_EDGE)}
    others = {name: points for name, points in curves.items() if name not in of_routers and name not in of_edge}
    found = []
    if others:
        found.append(_Panel("Latency of first copies and of whole paths", lambda axes: _draw(axes, others)))
    if of_routers:
        title = "While routers are replaced, beside quiet minutes and taken spare time"
        found.append(_Panel(title, lambda axes: _draw(axes, of_routers)))
    if PER_CPU.keys() & values.keys():
        found.append(_Panel("Gateway, QoS 1, 256 bytes", lambda axes: _draw_per_cpu(axes, values)))
    if any(name.startswith(tuple(RATIOS)) for name in values):
        found.append(_Panel("Throughput", lambda axes: _draw_ratios(axes, values)))
    if of_edge or BACK.keys() & values.keys():
        title = "Edge: the access point, beside a bare server; a gateway killed, and its client"
        found.append(_Panel(title, lambda axes: _draw_edge(axes, of_edge, values)))
    if AIMS.keys() & values.keys():
        found.append(_Panel("Edge: figures with an aim", lambda axes: draw_aims(axes, values)))
    if CLUSTER_AIMS.keys() & values.keys():
        title = "Gateways that share shards: figures with an aim"
        found.append(_Panel(title, lambda axes: draw_aims(axes, values, CLUSTER_AIMS)))
    return found


def _draw(axes: Any, curves: Curves) -> None:
    for name, points in sorted(curves.items()):
        axes.plot(*zip(*points, strict=True), label=name)
    if curves:
        axes.set(xscale="log", yscale="log")
        axes.legend(fontsize=8)
    axes.set(xlabel="latency, ms", ylabel="share of messages slower than that")
    axes.grid(True, which="both", alpha=0.3)


def _draw_per_cpu(axes: Any, values: Values) -> None:
    found = {name: values[name] for name in PER_CPU if name in values}
    axes.bar([PER_CPU[name][0] for name in found], list(found.values()))
    for at, name in enumerate(found):
        axes.plot([at - 0.4, at + 0.4], [PER_CPU[name][1]] * 2, color="black", linestyle="--", linewidth=1)
    axes.tick_params(axis="x", rotation=20)
    axes.set(ylabel="messages a CPU second (dashed: aim)")


def _draw_ratios(axes: Any, values: Values) -> None:
    for place, (prefix, label) in enumerate(RATIOS.items()):
        shown = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
        groups = range(len(shown))
        axes.bar([group + 0.4 * place for group in groups], list(shown.values()), 0.4, label=label)
        axes.set_xticks([group + 0.2 for group in groups], list(shown))
    axes.axhline(RATIO_AIM, color="black", linewidth=1, linestyle="--", label=f"aim {RATIO_AIM}")
    axes.set(xlabel="routes", ylabel="routing / pass-through, records a second", ylim=(0, 1.3))
    axes.legend(fontsize=8)


def _draw_edge(axes: Any, curves: Curves, values: Values) -> None:
    _draw(axes, curves)
    for name in BACK.keys() & values.keys():
        axes.axvline(values[name], color="black", linestyle=BACK[name], label=f"{name}, median")
        axes.legend(fontsize=8)


def draw_aims(axes: Any, values: Values, aims: Mapping[str, tuple[float, bool]] = AIMS) -> None:
    """How many times as good as its aim each figure is."""
    found = {name: aim for name, aim in aims.items() if values.get(name, 0) > 0}
    times = [
        values[name] / aim if is_more_better else aim / values[name] for name, (aim, is_more_better) in found.items()
    ]
    bars = axes.barh([f"{name}\naim {aim:g}" for name, (aim, _) in found.items()], times)
    axes.bar_label(bars, [f"{values[name]:g}" for name in found], padding=3)
    axes.axvline(1, color="black", linewidth=1, linestyle="--")
    axes.set(xlabel="times as good as the aim (dashed)", xscale="log", xlim=(0.1, 3 * max([1.0, *times])))
