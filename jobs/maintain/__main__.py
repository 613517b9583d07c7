"""The maintenance application (`python -m jobs.maintain`), with settings from the environment like all applications.

Exit status: 0 all that was due is done, 1 a step failed, 2 it could not start. It runs at low priority.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from pyspark import SparkConf, SparkContext

from jobs.errors import JobError, MaintainError
from jobs.maintain import report
from jobs.maintain.run import FAILED, Request, Result, maintain
from jobs.output import ends_quietly, visible
from jobs.runtime.application import hold_checkpoints, run_application
from jobs.runtime.spark_session import build_session
from jobs.runtime.submitted import is_submitted
from jobs.stack.jars import cache_directory
from schemas.settings import Settings

PART = "maintain"


def run(settings: Settings, request: Request, stopped: Event) -> list[Result]:
    """One run, with its lines on standard output. Raises MaintainError, also if another run is in progress."""
    try:
        held = (
            nullcontext()
            if request.dry_run
            else closing(hold_checkpoints(settings, PART, "wait until it has finished", stopped))
        )
    except JobError as error:
        raise MaintainError(str(error)) from error
    with held:
        _satisfy_yarn()
        return maintain(settings, request, cache_directory(os.environ), datetime.now(UTC), stopped.is_set, _say)


def _say(result: Result) -> None:
    _print(report.line(result))


def _print(line: str) -> None:
    """Goes on working if nobody reads its output any more."""
    with suppress(BrokenPipeError):
        sys.stdout.write(visible(line) + "\n")
        sys.stdout.flush()


def _satisfy_yarn() -> None:
    """YARN regards an application that ends without a Spark session as failed; other clusters do not."""
    if is_submitted(os.environ):
        SparkContext._ensure_initialized()
        if SparkConf().get("spark.master", "") == "yarn":
            build_session(PART, "yarn").stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.maintain", description=__doc__)
    parser.add_argument("--table", action="append", default=[], help="only this table")
    parser.add_argument("--dry-run", action="store_true", help="show what is due without changing anything")
    parser.add_argument("--with-today", action="store_true", help="also compact today's data")
    parser.add_argument("--json", type=Path, help="write the steps to this file")
    given = parser.parse_args(arguments)
    results: list[Result] = []
    request = Request(given.table, given.dry_run, given.with_today)

    def application(settings: Settings, _part: str, stopped: Event) -> None:
        os.nice(settings.stack.ledger_niceness)
        results.extend(run(settings, request, stopped))
        _print(report.summary(results, request.dry_run))
        if given.json:
            given.json.write_text(report.as_json(results, request.dry_run) + "\n")

    status = run_application(application)
    if status:
        return status
    return 1 if any(result.state == FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
