"""The demo's output: the figures of its progress, and the result; the same figures as JSON."""

import shutil
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jobs.demo.expectations import Account
from jobs.demo.fleet import Fleet
from jobs.output import Terminal, cell, json_text
from jobs.query.ledger_reader import Rows
from jobs.text_tables import Column

MUST_BE_ZERO = {
    "lost": "lost",
    "duplicates": "duplicates",
    "misordered": "out of order",
    "unacknowledged": "not acknowledged",
    "stray": "wrong recipient",
    "incomplete": "incomplete",
    "unrecorded": "deliveries missing in the ledger",
    "ledger_copies": "duplicate messages in the ledger",
    "quarantined": "in quarantine",
}
"""Figures that decide the exit status, with their labels."""

BEHIND = ("incomplete", "unrecorded")
"""Those of them that say how far the ledger lags behind the clients."""


def progress_figures(account: Account, fleet: Fleet) -> dict[str, str]:
    """What is shown while the day is replayed."""
    verdict, (online, offline) = account.verdict(), account.in_flight
    return {
        "connected": str(fleet.online),
        "published": str(verdict.published),
        "delivered": str(verdict.delivered),
        "in flight": str(online),
        "for offline clients": str(offline),
        "p50 ms": _number(verdict.p50_ms),
        "p99 ms": _number(verdict.p99_ms),
    }


def show_result(console: Terminal, figures: Mapping[str, Any]) -> None:
    """The final table."""
    rows: list[tuple[str, Any]] = [
        ("flights", figures["flights"]),
        ("clients", f"{figures['clients']} ({figures['aircraft']} aircraft)"),
        ("connections", f"{figures['connected']} ({figures['resumed']} resumed a session)"),
        ("published (QoS 0, 1, 2)", _by_qos(figures)),
        ("delivered", figures["delivered"]),
        ("  of these to clients that had been offline", figures["delivered_after_absence"]),
        ("latency p50", f"{_number(figures['p50_ms'])} ms"),
        ("latency p99", f"{_number(figures['p99_ms'])} ms"),
        *((label, figures[name]) for name, label in MUST_BE_ZERO.items()),
        *((f"ledger: {name}", f"{count} rows") for name, count in figures["ledger_rows"].items()),
        ("seconds: start, connect, replay, settle", _phases(figures)),
    ]
    cells = [(label, cell(str(value))) for label, value in rows]
    console.show_table((Column("figure"), Column("", is_number=True)), cells, title=f"Flights of {figures['date']}")
    wrong = [f"{label}: {figures[name]}" for name, label in MUST_BE_ZERO.items() if figures[name]]
    if wrong:
        console.print(f"these must be 0: {', '.join(wrong)}", style="red")


def show_journey(console: Terminal, message_id: str, steps: Rows) -> None:
    cells = [[_cell(value) for value in row] for row in steps.rows]
    console.show_table(steps.columns, cells, title=f"Journey of message {message_id}")


def show_commands(console: Terminal, data: Path, message_id: str | None, kept: bool) -> None:
    """Commands for looking further."""
    waystation = f"{_program()} --data {_short(data)}"
    commands = [
        f"{waystation} query \"SELECT source, count(*) FROM messages WHERE origin <> 'platform' GROUP BY ALL "
        f'ORDER BY 2 DESC LIMIT 10"',
        f"{waystation} query 'SELECT outcome, qos, count(*) FROM outcomes GROUP BY ALL'",
    ]
    if message_id:
        commands.append(f"{waystation} journey {message_id}")
    live = [f"{waystation} status", f"{waystation} subscribe '#'", f"{waystation} down"]
    console.print("Try these commands (the ledger is kept until the next demo):")
    for command in commands + (live if kept else []):
        console.print(f"  {command}")
    if kept:
        console.print("The stack keeps running; the last command stops it.")
    else:
        console.print("With --keep the stack keeps running, so that you can try `status`, `publish` and `subscribe`.")


def _program() -> str:
    """How this command line was called, if plain `waystation` would not be found."""
    called = Path(sys.argv[0])
    return "waystation" if shutil.which("waystation") or called.name != "waystation" else _short(called.absolute())


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text(figures), encoding="utf-8")


def _by_qos(figures: Mapping[str, Any]) -> str:
    return f"{figures['published']} ({', '.join(str(count) for count in figures['published_by_qos'].values())})"


def _phases(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{figures[name]:.0f}" for name in ("up_s", "muster_s", "replay_s", "settle_s"))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%H:%M:%S.%f}"
    return cell(value)
