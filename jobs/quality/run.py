"""A run of the quality job: choose dates, let Spark measure them, judge, append to `quality_results`, write pages."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import structlog
from pyspark.sql import DataFrame, Row, SparkSession

from jobs.errors import QualityError
from jobs.quality.contents import Contents, Day, read_contents
from jobs.quality.dates import Asked, looked_for_since, passes, to_judge, window_begin
from jobs.quality.judging import Judge, Measured
from jobs.quality.pages import Pages
from jobs.quality.results import Result, ResultsTable, Run
from pipelines.quality.expectations import EXPECTATIONS, LATENCIES, Expectation
from pipelines.quality.findings import Bounds, Scope, findings
from pipelines.sources import read_table
from schemas.settings import Settings
from schemas.tables import HISTORY
from schemas.topics import Topics

DOCS = "quality"

log = structlog.get_logger(__name__)


class Request(NamedTuple):
    """A request for a run: the dates `asked` for, where the pages go, and `settle_s` if it differs from the
    configuration."""

    asked: Asked = Asked()
    docs: Path | None = None
    settle_s: float | None = None


class Report(NamedTuple):
    """The findings of a run; `first_page` is the index. Without results there was nothing to judge. The dates `left`
    failed when they were last judged, and were not judged again."""

    run: Run
    results: list[Result]
    first_page: Path
    left: Sequence[date] = ()

    @property
    def failures(self) -> list[Result]:
        return [result for result in self.results if not result.success]

    @property
    def holds(self) -> bool:
        """Whether all is as expected: what was judged, and the dates that failed before."""
        return not (self.failures or self.left)

    @property
    def dates(self) -> list[date]:
        return sorted({result.day for result in self.results})


class Prepared(NamedTuple):
    """What is known before Spark starts: the run, its dates, the contents of the tables, where pages go, and the failed
    dates that are `left`."""

    run: Run
    dates: list[date]
    contents: Mapping[str, Contents]
    pages: Path
    left: list[date]


def prepare(settings: Settings, request: Request, now: datetime) -> Prepared:
    """Chooses the dates; `now` is UTC without a zone. Raises QualityError if there is no ledger, or no such date."""
    contents = read_contents(settings.tables)
    settle_s = settings.quality.settle_s if request.settle_s is None else request.settle_s
    run = Run(str(uuid.uuid4()), now, now - timedelta(seconds=settle_s))
    judged, again = ResultsTable(settings.tables).judged(), settings.quality.dates_per_pass
    chosen = to_judge(request.asked, contents, judged, run.until, again)
    return Prepared(run, chosen.dates, contents, request.docs or docs_directory(settings), chosen.left)


def docs_directory(settings: Settings) -> Path:
    """The default directory of the pages. Raises QualityError if it is not a directory."""
    if settings.quality.docs:
        return Path(settings.quality.docs)
    if "://" in settings.data:
        raise QualityError(f"cannot write pages to {settings.data}: set a directory with --docs or quality.docs")
    return Path(settings.data) / DOCS


def judge(spark: SparkSession, settings: Settings, prepared: Prepared) -> Report:
    """Judges the dates. All results are appended at once; the pages are written after that."""
    bounds = _bounds(settings)
    allowed = {one.name: float(bounds.latency_ms(one.name)) if one in LATENCIES else 0.0 for one in EXPECTATIONS}
    judge, pages, table = Judge(allowed), Pages(prepared.pages), ResultsTable(settings.tables)
    tables = {one.name: read_table(spark, settings.tables, one) for one in HISTORY}
    verdicts, results = {}, list[Result]()
    for dates in passes(prepared.dates, settings.quality.dates_per_pass):
        log.info("checking", dates=[str(day) for day in dates])
        for day, measured in _measure(spark, tables, settings, prepared, bounds, dates, allowed):
            verdicts[day] = judge.judge(measured)
            results += _results(day, measured, verdicts[day].success, prepared.contents)
    if results:
        table.append(prepared.run, results)
    for day, verdict in verdicts.items():
        pages.write_date(day, verdict.results, prepared.run.at, prepared.run.until)
    pages.write_index(table.last_runs(), table.trend())
    return Report(prepared.run, results, pages.index, prepared.left)


def _bounds(settings: Settings) -> Bounds:
    of = settings.quality
    return Bounds(of.clock_skew_s, of.latency_quantile, of.routing_ms, of.delivery_ms, of.examples)


def _measure(
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    settings: Settings,
    prepared: Prepared,
    bounds: Bounds,
    dates: Sequence[date],
    allowed: Mapping[str, float],
) -> Iterator[tuple[date, list[Measured]]]:
    """Every expectation's measurement for each of the dates."""
    contents = prepared.contents
    scope = Scope(
        dates=dates,
        until=prepared.run.until.replace(tzinfo=UTC),
        since=looked_for_since(dates, contents, settings.ledger.message_window_days),
        positions_since=window_begin(dates, settings.ledger.message_window_days),
        watermarks={name: table.newest for name, table in contents.items() if table.newest is not None},
        ingress=Topics(settings.kafka.prefix).ingress,
    )
    found = {(row.date, row.name): row for part in findings(spark, tables, scope, bounds) for row in part.collect()}
    for day in dates:
        yield (
            day,
            [_measured(one, day, found, allowed[one.name], settings.quality.latency_rows) for one in EXPECTATIONS],
        )


def _measured(
    one: Expectation, day: date, found: Mapping[tuple[date, str], Row], allowed: float, latency_rows: int
) -> Measured:
    row = found.get((day, one.name))
    if one in LATENCIES:
        if row is None or row.judged < latency_rows:
            return Measured(one, row.judged if row else 0, 0, None, allowed)
        return Measured(one, row.judged, row.unexpected, row.observed, allowed, row.examples)
    rows = found.get((day, one.table.name))
    judged = rows.judged if rows else 0
    return (
        Measured(one, judged, row.unexpected, row.observed, allowed, row.examples)
        if row
        else Measured(one, judged, 0, 0.0, allowed)
    )


def _results(
    day: date, measured: Sequence[Measured], success: Mapping[str, bool], contents: Mapping[str, Contents]
) -> Iterator[Result]:
    for one in measured:
        table = contents[one.expectation.table.name]
        rows = table.days.get(day, Day()).rows
        yield Result(day, one, success[one.expectation.name], table.version, rows)
