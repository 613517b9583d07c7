"""`report`: a page about a date of the ledger."""

from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from jobs.cli.context import shared
from jobs.cli.dates import DATE, date_of
from jobs.cli.optional import require
from jobs.errors import ReportError
from jobs.output import json_text, output
from jobs.query.ledger_reader import Memory

DIRECTORY = "reports"


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    context: typer.Context,
    dates: Annotated[
        list[date] | None,
        typer.Option("--date", parser=date_of, metavar=DATE, help="Report on this date, UTC. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the page, or a directory. Default: `reports` in the data directory."),
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures to this file, as JSON.")
    ] = None,
) -> None:
    """Write a report on a date: findings, traffic, latency, outcomes, busiest clients and topics, sessions.

    The report is one HTML file with plots and tables that needs no network. Without --date it covers yesterday if
    yesterday has messages, else the newest date with messages. It reads the ledger without Spark, in seconds; the stack
    need not be running.

    If a date has no rows, no report is written and the exit status is 1.

    Examples:

        waystation report
        waystation report --date 2026-11-21 --out report.html --json report.json
    """
    require("matplotlib", "report", ReportError)
    # matplotlib takes a second to import, so only this command imports it.
    from jobs.quality.contents import existing_contents
    from jobs.report.dates import activity, choose
    from jobs.report.facts import read_facts
    from jobs.report.page import page

    options = shared(context)
    settings, tables = options.settings().report, options.ledger(ReportError)
    contents = existing_contents(tables)
    chosen = choose(dates or [], contents, datetime.now(UTC).date())
    why = f" ({chosen.why})" if chosen.why else ""
    figures = []
    for day in chosen.dates:
        with TemporaryDirectory(prefix="waystation-report-") as spill:
            memory = Memory(settings.memory_mb, spill)
            facts = read_facts(tables, day, activity(contents, day), settings.top, memory)
        figures.append(facts.as_json())
        file = _file(out, len(chosen.dates), str(day), options.data())
        _write(file, page(facts))
        messages, copies = facts.totals["messages"], facts.totals["deliveries"]
        output().print(f"{day}{why}: messages {messages}, deliveries {copies}; report: {file}")
    if as_json is not None:
        _write(as_json, json_text(figures, indent=1))


def _file(out: Path | None, dates: int, day: str, data: Path) -> Path:
    if out is None:
        return data / DIRECTORY / f"{day}.html"
    return out / f"{day}.html" if dates > 1 or out.is_dir() else out


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ReportError(f"cannot write {file}: {error.strerror}; choose another file with --out or --json") from error
