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
        list[str] | None, typer.Option("--table", help="Maintain only this table. May be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is due without changing anything.")] = False,
    with_today: Annotated[bool, typer.Option("--with-today", help="Also compact today's data (UTC).")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the steps to this file, as JSON.")
    ] = None,
) -> None:
    """Maintain the ledger's tables: compact past dates, delete expired history and unused files.

    The stack can keep running. The section [maintain] of the configuration sets how long history is kept; by default,
    forever. Run the command once a day.

    The exit status is 0 if all steps succeeded, 1 if some failed (the others are done), 2 if it could not start.

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
