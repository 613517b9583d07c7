"""The entry point of `waystation`: global options, and one place where errors become one sentence."""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli import (
    certs,
    decisions,
    demo,
    doctor,
    jars,
    ledger,
    maintain,
    passwd,
    publish,
    quality,
    report,
    router,
    sessions,
    stack,
    status,
    submit,
    subscribe,
    topics,
)
from jobs.cli.context import Shared
from jobs.cli.helptext import let_flow
from jobs.output import ends_quietly, errors, visible
from schemas.errors import WaystationError

COMMANDS = (
    demo,
    stack,
    router,
    status,
    doctor,
    publish,
    subscribe,
    sessions,
    ledger,
    decisions,
    quality,
    report,
    maintain,
    passwd,
    certs,
    topics,
    jars,
    submit,
)
"""Modules with commands, in the order in which `--help` lists them."""

app = typer.Typer(
    name="waystation",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"waystation {version('waystation')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    conf: Annotated[
        list[Path] | None,
        typer.Option(help="A TOML file laid over conf/base.toml and conf/local.toml; may be given several times."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Directory of everything this stack keeps. Without it: the key `data`.")
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """A messaging platform: MQTT in and out, Kafka and Spark between, a Delta ledger of it all. `up` runs it on your
    machine, `submit` its Spark applications on a cluster.

    First steps on one machine, each in a terminal of its own:

        waystation up
        waystation subscribe 'greetings/#'
        waystation publish greetings/world 'hello'
        waystation query 'SELECT destination, qos, accepted FROM messages'

    Every key of conf/base.toml can also be set in the environment: WAYSTATION_GATEWAY__MQTT_PORT=1884.
    """
    context.obj = Shared(conf or [], data, os.environ)


for module in COMMANDS:
    module.register(app)
let_flow(app)


def main() -> None:
    """Run the command line. A WaystationError is one sentence and its exit status, 1 mostly; never a traceback. Nor is
    there one when the reader of the output goes: then it ends as a program does that SIGPIPE ends."""
    sys.exit(ends_quietly(_run))


def _run() -> int:
    try:
        app()
    except WaystationError as error:
        errors().print(visible(str(error)), style="red")
        return error.exit_status
    return 0


if __name__ == "__main__":
    main()
