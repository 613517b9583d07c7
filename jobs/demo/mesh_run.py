"""The mesh's demo from start to end: agents and stack up, the day, what arrived, the journey of a message (M5, M18)."""

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from jobs.demo import mesh_figures, mesh_hosts, mesh_report
from jobs.demo.flights import load_day
from jobs.demo.forwarder import Target
from jobs.demo.mesh_account import MeshAccount
from jobs.demo.mesh_agents import MeshFiles
from jobs.demo.mesh_day import MeshDay, Outcome, Pace
from jobs.demo.mesh_figures import Told
from jobs.demo.mesh_hosts import Hosts
from jobs.demo.mesh_network import Network
from jobs.demo.mesh_plan import MeshPlan, agent_of, plan_mesh
from jobs.demo.progress import Progress
from jobs.demo.run import Request, Result, select
from jobs.demo.stack import allow_open_files, make_room, running
from jobs.errors import QueryError
from jobs.output import Terminal
from jobs.query.journeys import journey
from jobs.query.ledger_reader import LedgerReader, Rows
from jobs.stack.state import StackState

LEDGER_S: Final = 40.0
"""How long to wait until the ledger has the message whose journey is shown."""
LEDGER_POLL_S: Final = 1.0


class _Day(NamedTuple):
    outcome: Outcome
    day_s: float
    settle_s: float


def run(request: Request, seed: int, console: Terminal) -> Result:
    """Run the demo and show it on `console`. Raises DemoError, StackError and any other error that prevents it.

    Everything started is stopped at the end; the stack stays if `request.keep` is set and the day is complete.
    """
    began = time.monotonic()
    plan = plan_mesh(select(load_day(request.date), request.until), seed)
    make_room(request.data, request.stop_timeout_s)
    allow_open_files()
    console.print(
        f"{request.date:%A %d %B %Y}: agents at {len(plan.airports)} airports and on {len(plan.aircraft)} aircraft; "
        f"uplinks are lost {len(plan.outages())} times (seed {seed})"
    )
    network, files, account = Network(plan.airports, plan.aircraft), MeshFiles(request.data), MeshAccount()
    files.make(plan, network.uplinks, network.links)
    pace = Pace(plan.begin, request.speed)
    console.print("starting the agents and the demo's stack")
    finished = False

    def say(line: str) -> None:
        console.print(line)
        hosts.check()

    with (
        mesh_hosts.running(plan, files, request.data / "logs", request.environ) as hosts,
        running(
            request.data,
            [files.overlay, *request.overlays],
            request.environ,
            request.stop_timeout_s,
            lambda: request.keep and finished,
            say,
        ) as state,
    ):
        up_s = time.monotonic() - began
        done = asyncio.run(_day(plan, files, network, hosts, account, pace, state, console))
        told = mesh_figures.ways(account, done.outcome.logs)
        asked = time.monotonic()
        shown = mesh_figures.journey_of(plan, told)
        steps = _in_the_ledger(request.data / "tables", shown, console) if shown else None
        phases = {"up_s": up_s, "day_s": done.day_s, "settle_s": done.settle_s, "ledger_s": time.monotonic() - asked}
        finished = True
    figures = {
        "date": str(request.date),
        "seed": seed,
        "speed": request.speed,
        **mesh_figures.figures(plan, account, told, done.outcome.statuses),
        **{name: round(seconds, 1) for name, seconds in phases.items()},
        "seconds": round(time.monotonic() - began, 1),
    }
    good = not any(figures[name] for name in mesh_figures.MUST_BE_ZERO)
    _show(console, figures, account, shown, steps, pace)
    return Result(figures, good)


async def _day(
    plan: MeshPlan,
    files: MeshFiles,
    network: Network,
    hosts: Hosts,
    account: MeshAccount,
    pace: Pace,
    state: StackState,
    console: Terminal,
) -> _Day:
    began = time.monotonic()
    gateway = _target(state, "mqtt")
    with Progress(console, lambda: _progress(account, network), time.monotonic) as progress:
        day = MeshDay(plan, files, network, hosts, account, pace, progress.watch)

        def act(text: str) -> None:
            progress.act = text

        try:
            await network.open(gateway, _target(state, "http"), hosts.ports())
            outcome = await day.run(gateway, act)
        finally:
            await network.close()
    return _Day(outcome, time.monotonic() - began - day.settled_s, day.settled_s)


def _target(state: StackState, listener: str) -> Target:
    host, _, port = state.listeners[listener].rpartition(":")
    return host.strip("[]"), int(port)


def _progress(account: MeshAccount, network: Network) -> Mapping[str, str]:
    verdict = account.verdict()
    return {
        "without uplink": " ".join(sorted(network.without_uplink)) or "–",
        "aircraft on the ground": str(len(network.standing)),
        "accepted": str(verdict.accepted),
        "arrived": str(verdict.arrived),
        "under way": str(verdict.lost),
    }


def _in_the_ledger(tables: Path, shown: Told, console: Terminal) -> Rows | None:
    """The journey of a message once it is complete there, or what there is after :data:`LEDGER_S`."""
    bundle = shown.bundle
    until, found = time.monotonic() + LEDGER_S, None
    with console.status("reading the ledger", refresh_per_second=2):
        while True:
            try:
                found = journey(LedgerReader(str(tables)), bundle)
            except QueryError:
                found = None  # no table yet
            if time.monotonic() > until or (found is not None and _is_complete(found, shown)):
                return found
            time.sleep(LEDGER_POLL_S)


def _is_complete(found: Rows, shown: Told) -> bool:
    steps = {str(row[1]) for row in found.rows}
    return "mesh: delivered" in steps and (not shown.way.by_platform or "completed" in steps)


def _show(
    console: Terminal,
    figures: Mapping[str, Any],
    account: MeshAccount,
    shown: Told | None,
    steps: Rows | None,
    pace: Pace,
) -> None:
    mesh_report.show_result(console, figures)
    if shown is not None:
        now, wall_s = pace.now, time.time()

        def plan_time(at_s: float) -> datetime:
            return now - timedelta(seconds=(wall_s - at_s) * pace.speed)

        mesh_report.show_trace(console, shown, plan_time)
        if steps is not None and steps.rows:
            mesh_report.show_ledger(console, shown.bundle, steps)
        else:
            console.print("The ledger has not got this message yet.")
    for message in account.missing()[:10]:
        to = agent_of(message.to) if message.to else "the platform"
        console.print(f"  not arrived: {message.number} ({message.id}) of {agent_of(message.sender)} to {to}")
    if not any(figures[name] for name in mesh_figures.MUST_BE_ZERO):
        console.print(f"Nothing lost, nothing doubled, in {figures['seconds']:.0f} s.", style="green")
    else:
        console.print("Messages were lost or doubled: see the figures in red.", style="red")
