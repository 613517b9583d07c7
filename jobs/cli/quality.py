"""`quality`: does the ledger hold what it promises? Starts the Spark application for this data directory."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.context import shared
from jobs.errors import QualityError
from jobs.quality.contents import read_contents
from schemas.errors import WaystationError

LOG = "quality.log"
DAY = "%Y-%m-%d"


def register(app: typer.Typer) -> None:
    app.command()(quality)


def quality(
    context: typer.Context,
    dates: Annotated[
        list[datetime] | None,
        typer.Option("--date", formats=[DAY], help="Judge this date, UTC; may be given several times."),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=[DAY], help="Judge this date and all later ones that have rows.")
    ] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Directory of the pages. Without it: the key `quality.docs`.")
    ] = None,
    settle: Annotated[
        float | None, typer.Option(min=0.0, help="Leave out the newest rows, seconds. Without it: `quality.settle_s`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False,
) -> None:
    """Judge the ledger by Great Expectations: ids unique, all messages there, times in order, no gap, no undue delay.

    Without --date and --since: every date with rows that no run has judged. Results are appended to the table
    `quality_results`, and pages written (`quality/index.html` in the data directory). Takes a minute; the stack may run
    or not.

    The exit status is 0 if all that was judged holds, 1 if something does not, 2 if it could not be judged.

    Examples:

        waystation quality
        waystation quality --date 2026-11-21 --json
        waystation query 'SELECT * FROM quality_results WHERE NOT success'
    """
    options = shared(context)
    arguments = [f"--date={one:{DAY}}" for one in dates or []]
    arguments += [f"--since={since:{DAY}}"] if since else []
    arguments += [f"--docs={docs.absolute()}"] if docs else []
    arguments += [f"--settle={settle}"] if settle is not None else []
    arguments += ["--json"] if as_json else []
    try:
        read_contents(options.tables())  # without a ledger it says so, and starts no JVM
        environment = options.job_environment()
    except QualityError:
        raise
    except WaystationError as error:
        raise QualityError(str(error)) from error
    status = _run(arguments, environment, options.data() / "logs" / LOG)
    if status:
        raise typer.Exit(status)


def _run(arguments: list[str], environment: dict[str, str], log: Path) -> int:
    """Run the application; what it and its JVM say on the way goes to `log`. Its exit status.

    Raises QualityError with its last line if it could not judge.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as said:
        done = subprocess.run([sys.executable, "-m", "jobs.quality", *arguments], env=environment, stderr=said)
    lines = log.read_text(errors="replace").strip().splitlines()
    if done.returncode == QualityError.exit_status and lines:
        raise QualityError(lines[-1])
    if done.returncode not in (0, 1):
        raise QualityError(f"the quality job ended with status {done.returncode}: see {log}")
    return done.returncode
