"""`quality`: does the ledger hold what it promises? Starts the Spark application for this data directory."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.context import shared
from jobs.cli.dates import DATE, date_of
from jobs.cli.job import run_job
from jobs.cli.optional import require
from jobs.errors import QualityError
from jobs.quality.contents import read_contents
from schemas.errors import WaystationError

LOG = "quality.log"


def register(app: typer.Typer) -> None:
    app.command()(quality)


def quality(
    context: typer.Context,
    dates: Annotated[
        list[date] | None,
        typer.Option("--date", parser=date_of, metavar=DATE, help="Check this date, UTC. May be repeated."),
    ] = None,
    since: Annotated[
        date | None,
        typer.Option(parser=date_of, metavar=DATE, help="Check this date and all later ones that have rows."),
    ] = None,
    docs: Annotated[Path | None, typer.Option(help="Directory of the pages. Default: the key `quality.docs`.")] = None,
    settle: Annotated[
        float | None,
        typer.Option(min=0.0, help="Skip rows newer than this many seconds. Default: the key `quality.settle_s`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False,
) -> None:
    """Check the quality of the ledger with Great Expectations: unique ids, no missing message, times in order, no gaps,
    latencies within bounds.

    Without --date and --since it checks every date with unchecked rows, and again the dates that failed before. It
    appends the results to the table `quality_results` and writes pages (`quality/index.html` in the data directory).
    A run takes about a minute; the stack need not be running.

    The exit status is 0 if every expectation passed, 1 if one failed now or at the last check of a date that was not
    checked again, and 2 if the check could not run.

    Examples:

        waystation quality
        waystation quality --date yesterday --json
        waystation query 'SELECT * FROM quality_results WHERE NOT success'
    """
    require("great_expectations", "quality", QualityError)
    options = shared(context)
    arguments = [f"--date={one}" for one in dates or []]
    arguments += [f"--since={since}"] if since else []
    arguments += [f"--docs={docs.absolute()}"] if docs else []
    arguments += [f"--settle={settle}"] if settle is not None else []
    arguments += ["--json"] if as_json else []
    try:
        read_contents(options.ledger(QualityError))  # reports a missing ledger without starting a JVM
        environment = options.job_environment()
    except QualityError:
        raise
    except WaystationError as error:
        raise QualityError(str(error)) from error
    run_job("jobs.quality", arguments, environment, options.data() / "logs" / LOG, QualityError)
