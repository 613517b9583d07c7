"""The findings of a run, for people and as JSON."""

from typing import Any

from jobs.output import Terminal, cell, json_text
from jobs.quality.results import Result
from jobs.quality.run import Report
from jobs.text_tables import Column

SHOWN = 10


def show(report: Report, terminal: Terminal) -> None:
    """A line, and a table of the failures: which expectation, how many rows, and ids to find them by."""
    if not report.results:
        terminal.print("nothing to check: every date with rows older than quality.settle_s has been checked")
        _show_left(report, terminal)
        return
    if report.failures:
        columns = (
            *(Column("date"), Column("failed expectation", is_prose=True)),
            *map(Column, ("unexpected", "checked", "examples")),
        )
        terminal.show_table(columns, [_cells(one) for one in report.failures])
    days, failures = report.dates, len(report.failures)
    judged = str(days[0]) if len(days) == 1 else f"{len(days)} dates, {days[0]} to {days[-1]}"
    verdict = f"{failures} of {len(report.results)} expectations failed" if failures else "all expectations passed"
    terminal.print(f"{judged}: {verdict}; pages: {report.first_page}")
    _show_left(report, terminal)


def _show_left(report: Report, terminal: Terminal) -> None:
    if report.left:
        failed = f"{', '.join(map(str, report.left[:SHOWN]))}{', …' if len(report.left) > SHOWN else ''}"
        terminal.print(f"{len(report.left)} dates failed in an earlier run and were not checked again: {failed}")


def as_json(report: Report) -> str:
    """One object: the run, its dates, whether all holds, which failed dates are `left`, and every result as in
    `quality_results`."""
    return json_text(
        {
            "run_id": report.run.id,
            "run_at": f"{report.run.at.isoformat()}Z",
            "judged_until": f"{report.run.until.isoformat()}Z",
            "dates": [str(day) for day in report.dates],
            "success": report.holds,
            "left": [str(day) for day in report.left],
            "pages": str(report.first_page),
            "results": [_plain(one.row()) for one in report.results],
        }
    )


def _cells(result: Result) -> tuple[str, ...]:
    one = result.measured
    observed = str(one.unexpected)
    if one.observed != one.unexpected:
        observed = f"{one.observed:g} ms, limit {one.allowed:g} ms; {one.unexpected} rows"
    cells = (str(result.day), one.expectation.sentence, observed, str(one.judged), ", ".join(one.examples))
    return tuple(map(cell, cells))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"date": str(row["date"])}
