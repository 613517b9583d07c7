"""The figures of a simulation: a table for the terminal, flat JSON, and a plot."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from edge.sim.outcome import Outcome

JSON, PLOT = "mesh.json", "mesh.png"
PREFIX = "mesh_"
"""Of the names of all figures of traces."""
_COLUMNS = ("delivered", "median s", "transmissions", "gateway hits", "recipient hits")


class TraceOutcomes(NamedTuple):
    """All runs over one trace with one scenario."""

    direct: Outcome
    spray: Outcome
    oracle: Outcome
    mesh: Outcome
    unlimited: Outcome


def _quotient(value: float, by: float) -> float:
    return value / by if by else 0.0


_FIGURES: Final[Mapping[str, Callable[[TraceOutcomes], float]]] = {
    "ratio": lambda runs: runs.mesh.ratio,
    "tx": lambda runs: runs.mesh.transmissions_each,
    "hits": lambda runs: runs.mesh.hits_each,
    "recipient_hits": lambda runs: runs.mesh.given_each,
    "median_s": lambda runs: runs.mesh.median_s,
    "ratio_vs_spray": lambda runs: _quotient(runs.mesh.ratio, runs.spray.ratio),
    "tx_vs_spray": lambda runs: _quotient(runs.mesh.transmissions_each, runs.spray.transmissions_each),
    "spray_ratio": lambda runs: runs.spray.ratio,
    "spray_tx": lambda runs: runs.spray.transmissions_each,
    "spray_hits": lambda runs: runs.spray.hits_each,
    "spray_median_s": lambda runs: runs.spray.median_s,
    "direct_ratio": lambda runs: runs.direct.ratio,
    "oracle_ratio": lambda runs: runs.oracle.ratio,
    "oracle_median_s": lambda runs: runs.oracle.median_s,
    "unlimited_ratio": lambda runs: runs.unlimited.ratio,
    "unlimited_tx": lambda runs: runs.unlimited.transmissions_each,
    "unlimited_hits": lambda runs: runs.unlimited.hits_each,
    "unlimited_vs_oracle": lambda runs: _quotient(runs.unlimited.ratio, runs.oracle.ratio),
}
"""Ratios are shares of messages delivered; `tx` are transmissions for each message, `hits` bundles that gateways took
for each message delivered, `recipient_hits` what recipients were given."""


def keys(name: str) -> list[str]:
    """Of the figures of a trace."""
    return [f"{PREFIX}{name}_{figure}" for figure in _FIGURES]


def figures(name: str, runs: TraceOutcomes) -> dict[str, float]:
    """By their keys."""
    return {key: round(of(runs), 4) for key, of in zip(keys(name), _FIGURES.values(), strict=True)}


def table(name: str, runs: TraceOutcomes) -> str:
    """One line for each run."""
    lines = [f"  {name:28}" + "".join(f"{column:>16}" for column in _COLUMNS)]
    named = {
        "direct delivery": runs.direct,
        "plain binary spray, 8": runs.spray,
        "mesh": runs.mesh,
        "mesh, unlimited copies": runs.unlimited,
    }
    for label, run in named.items():
        numbers = (run.ratio, run.median_s, run.transmissions_each, run.hits_each, run.given_each)
        lines.append(f"  {label:28}" + "".join(f"{number:16,.3f}" for number in numbers))
    oracle = runs.oracle
    lines.append(f"  {'oracle (earliest arrival)':28}{oracle.ratio:16,.3f}{oracle.median_s:16,.3f}")
    return "\n".join(lines)


def write(values: Mapping[str, float], directory: Path) -> None:
    """`mesh.json`: these in place of all figures of traces; what else is there, such as those of the agent that
    `make bench` has measured, stays."""
    kept = {name: value for name, value in _read(directory).items() if not name.startswith(PREFIX)}
    _write({**kept, **values}, directory)


def merge(values: Mapping[str, float], directory: Path) -> None:
    """`mesh.json`: these, and all that is there under other names."""
    _write({**_read(directory), **values}, directory)


def plot(traces: Mapping[str, TraceOutcomes], directory: Path) -> None:
    """`mesh.png`: for each trace the share of messages delivered over time, and transmissions beside hits."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(traces), figsize=(5.5 * len(traces), 9), layout="constrained", squeeze=False)
    for column, (name, runs) in enumerate(traces.items()):
        above, below = axes[0][column], axes[1][column]
        named = runs._asdict()
        for label, run in named.items():
            hours = [delay / 3600 for delay in run.delays_s]
            shares = [(at + 1) / len(run.scenario.messages) for at in range(len(hours))]
            above.step(hours, shares, where="post", label=label, linestyle="--" if label == "oracle" else "-")
        above.set(title=name, xlabel="hours since a message was written", ylabel="delivered", ylim=(0, 1.02))
        above.grid(alpha=0.3)
        above.legend(fontsize=8)
        shown = [label for label in named if label != "oracle"]
        places = range(len(shown))
        below.bar([at - 0.2 for at in places], [named[label].transmissions_each for label in shown], 0.4)
        below.bar([at + 0.2 for at in places], [named[label].hits_each for label in shown], 0.4)
        below.set_xticks(list(places), shown)
        below.set(ylabel="transmissions (left) and gateway hits (right) a message", yscale="log")
    figure.suptitle("The mesh over contact traces: messages live 24 h, 5 % of the nodes have an uplink")
    figure.savefig(directory / PLOT, dpi=110)
    plt.close(figure)


def _read(directory: Path) -> dict[str, float]:
    """What an earlier run has written; nothing if there was none, or if it was stopped while it wrote."""
    try:
        return dict(json.loads((directory / JSON).read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def _write(values: Mapping[str, float], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / JSON).write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
