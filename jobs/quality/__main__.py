"""The quality application (`python -m jobs.quality`), with settings from the environment like all Spark applications.

Exit status: 0 all that was judged holds, and so did what was judged before; 1 something does not; 2 it could not be
judged.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from jobs.errors import QualityError
from jobs.output import ends_quietly, output
from jobs.quality import report
from jobs.quality.dates import Asked
from jobs.quality.pages import INDEX
from jobs.quality.run import Report, Request, judge, prepare
from jobs.runtime.application import failing_as, hold_checkpoints, run_application
from jobs.runtime.dates import parse_date
from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
from jobs.runtime.storage import storage_settings
from schemas.settings import Settings

PART = "quality"
THREADS = 2


def session_settings(settings: Settings) -> dict[str, str]:
    """The job session's settings in addition to :mod:`jobs.runtime.spark_session`; its JVM uses the ledger's
    options."""
    return {
        "spark.driver.memory": settings.quality.heap,
        JAVA_OPTIONS: settings.stack.ledger_java_options,
    } | storage_settings(settings.storage)


def run(settings: Settings, request: Request, stopped: Event) -> Report:
    """One run. Raises QualityError, or JobError if another run over the same data is in progress."""
    prepared = prepare(settings, request, datetime.now(UTC).replace(tzinfo=None))
    with closing(hold_checkpoints(settings, PART, "wait until it has finished", stopped)):
        if not prepared.dates:
            return Report(prepared.run, [], prepared.pages / INDEX, prepared.left)
        spark = build_session(PART, f"local[{THREADS}]", session_settings(settings))
        try:
            return judge(spark, settings, prepared)
        finally:
            spark.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.quality", description=__doc__)
    parser.add_argument("--date", type=parse_date, action="append", default=[], help="check this date")
    parser.add_argument("--since", type=parse_date, help="check this date and all later ones")
    parser.add_argument("--docs", type=Path, help="directory of the pages")
    parser.add_argument(
        "--settle", type=float, help="skip rows newer than this many seconds; default: quality.settle_s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    reports: list[Report] = []

    def application(settings: Settings, part: str, stopped: Event) -> None:
        request = Request(Asked(given.date, given.since), given.docs, given.settle)
        with failing_as(QualityError, "cannot check the ledger"):
            reports.append(run(settings, request, stopped))

    status = run_application(application)
    if status:
        return QualityError.exit_status
    if given.json:
        sys.stdout.write(report.as_json(reports[0]))
    else:
        report.show(reports[0], output())
    return 0 if reports[0].holds else 1


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
