"""The table `quality_results`: the results of earlier runs, and those of this one."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from importlib import resources
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from jobs.quality.dates import Judged
from jobs.quality.judging import Measured
from jobs.quality.pages import SuiteRun
from jobs.quality.trend import TrendDay
from jobs.query.ledger_reader import LedgerReader
from pipelines.sinks import ensure_table
from pipelines.sources import table_uri
from schemas.sql import named_blocks
from schemas.tables import QUALITY_RESULTS

RUN_PREFIX = "quality-"


class Result(NamedTuple):
    """A row of `quality_results` (:mod:`schemas.tables`) without the run's columns; most of it is in `measured`."""

    day: date
    measured: Measured
    success: bool
    table_version: int
    table_rows: int

    def row(self) -> dict[str, Any]:
        """The columns of each result, for `--json` and the table."""
        one = self.measured
        return {
            "date": self.day,
            "suite": one.expectation.suite,
            "expectation": one.expectation.sentence,
            "table_name": one.expectation.table.name,
            "success": self.success,
            "judged": one.judged,
            "unexpected": one.unexpected,
            "observed": one.observed,
            "allowed": one.allowed,
            "sample": "\n".join(one.examples) if one.examples and not self.success else None,
        }


class Run(NamedTuple):
    """A run of the job: its id, when it began, and that it judges rows appended before `until`. UTC without a zone."""

    id: str
    at: datetime
    until: datetime


class ResultsTable:
    """`quality_results` under `tables`. Only this job appends to it; the first run creates it."""

    def __init__(self, tables: str) -> None:
        self._tables = tables

    def judged(self) -> dict[tuple[date, str], Judged]:
        """What the last runs found, by date and table."""
        return {
            (day, name): Judged(rows, until.replace(tzinfo=None), holds, at.replace(tzinfo=None))
            for day, name, rows, until, holds, at in self._answer("judged")
        }

    def last_runs(self) -> list[SuiteRun]:
        """The last run of each date, one row per suite."""
        return [SuiteRun(*row) for row in self._answer("last_runs")]

    def trend(self) -> list[TrendDay]:
        """What the last run of each date found, oldest date first."""
        return [TrendDay(*row) for row in self._answer("trend")]

    def append(self, run: Run, results: Sequence[Result]) -> None:
        """All rows of a run, in one commit that carries its id: all or none, and only once. Needs a Spark session."""
        ensure_table(self._tables, QUALITY_RESULTS)
        own = {"run_id": run.id, "run_at": _utc(run.at), "judged_until": _utc(run.until)}
        rows = [
            result.row() | own | {"table_version": result.table_version, "table_rows": result.table_rows}
            for result in results
        ]
        table = DeltaTable(table_uri(self._tables, QUALITY_RESULTS))
        commit = CommitProperties(app_transactions=[Transaction(f"{RUN_PREFIX}{run.id}", 0)])
        schema = pa.schema(table.schema().to_arrow())
        write_deltalake(table, pa.Table.from_pylist(rows, schema), mode="append", commit_properties=commit)

    def _answer(self, block: str) -> list[tuple[Any, ...]]:
        sql = named_blocks(resources.files("jobs.quality").joinpath("results.sql").read_text())[block]
        reader = LedgerReader(self._tables, {})
        return list(reader.query(sql).rows) if QUALITY_RESULTS.name in reader.tables else []


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)
