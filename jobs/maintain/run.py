"""A run of maintenance: finds what is due, table by table, and does it. A failed step does not stop the others."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import structlog
from deltalake import DeltaTable

from jobs.errors import MaintainError
from jobs.maintain.current import current_steps
from jobs.maintain.history import history_steps
from jobs.maintain.leftovers import generation_steps, submission_steps
from jobs.maintain.plan import Amount, Step, Stopping
from jobs.maintain.vacuum import vacuum_steps
from jobs.observe.progress import first_line
from jobs.stack.missing import why_no_tables
from pipelines.sources import table_uri
from schemas.settings import Settings
from schemas.tables import TABLES

PLANNING = "planning"
DONE, PLANNED, FAILED, STOPPED = "done", "planned", "failed", "stopped"

log = structlog.get_logger(__name__)


class Request(NamedTuple):
    """A request for a run: `tables` by name (none: all, and what is outside them); only plan (`dry_run`); compact the
    current date too (`with_today`)."""

    tables: Sequence[str] = ()
    dry_run: bool = False
    with_today: bool = False


class Result(NamedTuple):
    """The result of a step: `done`, `planned`, `failed` with an `error`, or `stopped` before its end."""

    place: str
    task: str
    amount: Amount
    state: str
    error: str = ""


Report = Callable[[Result], None]


def maintain(
    settings: Settings, request: Request, cache: Path, now: datetime, stopping: Stopping, report: Report
) -> list[Result]:
    """One run; `now` in UTC, `cache` where submissions are. Each result is passed to `report` as it comes.

    Raises MaintainError if there is no such table.
    """
    results = []
    for result in _results(settings, request, cache, now, stopping):
        results.append(result)
        amount = result.amount
        of = {"dates": list(map(str, amount.dates)), "files": amount.files, "rows": amount.rows, "bytes": amount.bytes}
        log.info("maintenance", place=result.place, task=result.task, state=result.state, **of)
        report(result)
    return results


def _results(settings: Settings, request: Request, cache: Path, now: datetime, stopping: Stopping) -> Iterator[Result]:
    names = _names(settings.tables, request.tables)
    for name in names:
        for plan in _plans(settings, request, name, now):
            yield from _performed(name, plan, request.dry_run, stopping)
    if not request.tables:
        before = now - timedelta(days=settings.maintain.leftover_days)
        yield from _performed(
            settings.tables, lambda: generation_steps(settings.tables, names, before), request.dry_run, stopping
        )
        yield from _performed(str(cache), lambda: submission_steps(cache, before), request.dry_run, stopping)


def _names(tables: str, asked: Sequence[str]) -> list[str]:
    """The existing tables, or the requested ones among them."""
    there = [name for name, table in TABLES.items() if DeltaTable.is_deltatable(table_uri(tables, table))]
    if not there:
        raise MaintainError(why_no_tables(tables))
    if missing := sorted(set(asked) - set(there)):
        raise MaintainError(f"unknown table {', '.join(missing)}: choose from {', '.join(there)}")
    return [name for name in there if not asked or name in asked]


def _plans(settings: Settings, request: Request, name: str, now: datetime) -> Iterator[Callable[[], list[Step]]]:
    """In this order: what is removed need not be compacted first."""
    uri = table_uri(settings.tables, TABLES[name])
    if TABLES[name].partition_by == ("date",):
        yield lambda: history_steps(uri, name, settings.maintain, now.date(), request.with_today)
    else:
        yield lambda: current_steps(settings, name, now)
    yield lambda: vacuum_steps(uri, name, settings.maintain.vacuum_hours, now)


def _performed(place: str, plan: Callable[[], Iterable[Step]], dry_run: bool, stopping: Stopping) -> Iterator[Result]:
    if stopping():
        return
    try:
        steps = list(plan())
    except Exception as error:
        log.exception("planning failed", place=place)
        yield Result(place, PLANNING, Amount(), FAILED, first_line(str(error)))
        return
    for step in steps:
        yield Result(step.place, step.task, step.amount, *_outcome(step, dry_run, stopping))


def _outcome(step: Step, dry_run: bool, stopping: Stopping) -> tuple[str, str]:
    if dry_run:
        return PLANNED, ""
    try:
        if not stopping():
            step.perform(stopping)
    except Exception as error:
        log.exception("step failed", place=step.place, task=step.task)
        return FAILED, first_line(str(error))
    return (STOPPED if stopping() else DONE), ""
