"""`maintain`: keep the ledger's tables bounded. Starts the application for this data directory."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.context import shared
from jobs.cli.job import run_job
from jobs.errors import MaintainError
from schemas.errors import WaystationError

LOG = "maintain.log"


def register(app: typer.Typer) -> None:
    app.command()(maintain)


def maintain(
    context: typer.Context,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table; may be given several times.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is due, and do nothing.")] = False,
    with_today: Annotated[bool, typer.Option("--with-today", help="Compact the present date (UTC) too.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the steps to this file, as JSON.")
    ] = None,
) -> None:
    """Keep the ledger bounded: compact past dates, remove expired history, delete files that nobody needs.

    The stack may be running: its queries, readers and other jobs go on. [maintain] of the configuration says how long
    what is kept; by default all history is. Run it once a day.

    The exit status is 0 if everything due is done, 1 if a step failed (the others are done), 2 if it could not start.

    Examples:

        waystation maintain --dry-run
        waystation maintain
        waystation maintain --table messages --with-today
    """
    options = shared(context)
    try:
        options.ledger(MaintainError)
    except WaystationError as error:
        raise MaintainError(str(error)) from error
    arguments = [f"--table={name}" for name in tables or []]
    arguments += ["--dry-run"] if dry_run else []
    arguments += ["--with-today"] if with_today else []
    arguments += [f"--json={json_file.absolute()}"] if json_file else []
    log = options.data() / "logs" / LOG
    run_job("jobs.maintain", arguments, options.application_environment(), log, MaintainError)
