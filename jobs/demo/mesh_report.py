"""The output of the mesh's demo: its table, and the journey of one message in the agents' logs and in the ledger."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from jobs.demo.flights import HOME_ZONE
from jobs.demo.mesh_figures import MUST_BE_ZERO, Told
from jobs.output import Terminal, cell
from jobs.query.ledger_reader import Rows
from jobs.text_tables import Column


def show_result(console: Terminal, figures: Mapping[str, Any]) -> None:
    """The final table."""
    delays = figures["delay_min"]
    uplinks = f"{figures['airports_without_uplink']} airports, {figures['outages']} times, {figures['outage_hours']} h"
    rows: list[tuple[str, Any]] = [
        ("agents", f"{figures['airports']} airports, {figures['aircraft']} aircraft ({figures['flights']} flights)"),
        ("uplinks lost", uplinks),
        ("messages accepted", figures["accepted"]),
        ("  of these to other agents", figures["to_agents"]),
        ("  of these at airports without uplink", figures["without_uplink"]),
        ("  of these of aircraft", figures["of_aircraft"]),
        ("arrived by the server path (own uplink)", figures["by_server_path"]),
        ("arrived by the mesh", figures["by_mesh"]),
        ("  from agent to agent all the way", figures["by_mesh_to_the_agent"]),
        ("  brought to the platform by another agent", figures["by_mesh_and_platform"]),
        *((label, figures[name]) for name, label in MUST_BE_ZERO.items()),
        (f"delay in flight-plan time (1 s: {figures['speed'] / 60:.0f} min), median and p99", _delay(delays["all"])),
        ("  by the server path", _delay(delays["server_path"])),
        ("  by the mesh", _delay(delays["mesh"])),
        ("links on the way, by the mesh", _hops(figures["hops"])),
        ("claims granted, refused", f"{figures['claims_granted']}, {figures['claims_refused']}"),
        ("seconds: start, day, settle, ledger", _phases(figures)),
    ]
    if figures["way_unknown"]:
        rows.insert(10, ("way not found in the logs", figures["way_unknown"]))
    cells = [(label, cell(str(value))) for label, value in rows]
    console.show_table((Column("figure"), Column("", is_number=True)), cells, title=f"Agents on {figures['date']}")
    wrong = [f"{label}: {figures[name]}" for name, label in MUST_BE_ZERO.items() if figures[name]]
    if wrong:
        console.print(f"these must be 0: {', '.join(wrong)}", style="red")


def show_trace(console: Terminal, told: Told, plan_time: Callable[[float], datetime]) -> None:
    """The steps of a message in the logs of the agents on its way, as `waystation agent trace` shows them."""
    on_the_way = [one for one in told.steps if one.agent in told.way.agents]
    rows = [
        (f"{plan_time(step.at_s).astimezone(HOME_ZONE):%H:%M}", agent, step.event, cell(step.detail))
        for agent, step in on_the_way
    ]
    console.show_table(
        (Column("New York"), Column("agent"), Column("step"), Column("detail")),
        rows,
        title=f"Message {told.message.id}: {' → '.join(told.way.agents)}",
    )


def show_ledger(console: Terminal, message_id: str, steps: Rows) -> None:
    """The same message in the ledger."""
    cells = [[f"{v:%H:%M:%S.%f}" if isinstance(v, datetime) else cell(v) for v in row] for row in steps.rows]
    console.show_table(steps.columns, cells, title=f"The same message in the ledger: journey {message_id}")


def _delay(found: Mapping[str, float | None]) -> str:
    return ", ".join("–" if value is None else _time(value) for value in found.values())


def _time(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _hops(hops: Mapping[str, int]) -> str:
    return ", ".join(f"{links}: {count}" for links, count in hops.items()) or "–"


def _phases(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{figures[name]:.0f}" for name in ("up_s", "day_s", "settle_s", "ledger_s"))
