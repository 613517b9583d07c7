"""`python -m edge.sim --traces DIRECTORY`: the mesh over contact traces, in minutes; `make mesh` installs them."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bundles.bundle import HOPS_MAX
from edge.mesh.limits import MeshLimits
from edge.sim import baselines, world
from edge.sim.baselines import Progress
from edge.sim.figures import JSON, PLOT, TraceOutcomes, figures, plot, table, write
from edge.sim.scenario import draw
from edge.sim.trace import FILES, Trace, load
from schemas.errors import WaystationError

SEED, MESSAGES = 1, 300
UNLIMITED = MeshLimits(copies=0, hops=HOPS_MAX)


def simulate(trace: Trace, seed: int, messages: int, progress: Callable[[str], Progress]) -> TraceOutcomes:
    """All runs over a trace, with the scenario of the seed."""
    scenario = draw(trace, seed, messages)
    return TraceOutcomes(
        direct=baselines.direct(trace, scenario),
        spray=baselines.plain_spray(trace, scenario),
        oracle=baselines.oracle(trace, scenario),
        mesh=world.run(trace, scenario, MeshLimits(), progress=progress("mesh")),
        unlimited=world.run(trace, scenario, UNLIMITED, patience_s=0, progress=progress("mesh, unlimited copies")),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m edge.sim", description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the directory with the files of the traces")
    parser.add_argument("--only", choices=FILES, help="one trace")
    parser.add_argument("--seed", type=int, default=SEED, help="draws other uplinks and messages")
    parser.add_argument("--out", type=Path, default=Path("build"), help="where mesh.json and mesh.png go")
    options = parser.parse_args()
    try:
        run([options.only] if options.only else list(FILES), options.traces, options.seed, options.out)
    except WaystationError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


def run(names: list[str], traces: Path, seed: int, out: Path, messages: int = MESSAGES) -> None:
    """Simulates the traces; writes table, JSON and plot."""
    began = time.monotonic()
    values: dict[str, float] = {}
    outcomes: dict[str, TraceOutcomes] = {}
    for trace in [load(name, traces) for name in names]:
        _say(f"{trace.name}: {len(trace.nodes)} nodes, {trace.hours:.1f} h")
        outcomes[trace.name] = simulate(trace, seed, messages, _progress)
        values |= figures(trace.name, outcomes[trace.name])
        _say(table(trace.name, outcomes[trace.name]))
        write(values, out)
    plot(outcomes, out)
    _say(f"written in {time.monotonic() - began:.0f} s: {out / JSON}, {out / PLOT}")


def _progress(label: str) -> Progress:
    """Shows the share that is done, on a terminal only."""

    def show(share: float) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r  {label}: {share:4.0%} \r")
            sys.stderr.flush()

    return show


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
