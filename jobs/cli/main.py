"""The entry point of `waystation`: global options, and the one place that turns errors into one sentence.

A module of commands is imported only if one of its commands is called: DuckDB, pandas and the Kafka client take seconds
to import, which `publish` or `--version` must not wait for.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from edge.cli.application import VERSION, Version, new_application
from edge.cli.helptext import let_flow
from jobs.cli.context import Shared
from jobs.output import ends_quietly, errors, visible
from schemas.errors import WaystationError

COMMANDS = {
    "demo": ("demo",),
    "stack": ("up", "down"),
    "router": ("router",),
    "status": ("status",),
    "doctor": ("doctor",),
    "publish": ("publish",),
    "subscribe": ("subscribe",),
    "request": ("request",),
    "sessions": ("sessions", "session", "kick"),
    "gateways": ("gateways", "shards", "shard"),
    "gateway": ("gateway",),
    "dispatcher": ("dispatcher",),
    "ledger": ("query", "journey"),
    "decisions": ("explain", "audit"),
    "quality": ("quality",),
    "report": ("report",),
    "maintain": ("maintain",),
    "passwd": ("passwd",),
    "certs": ("certs",),
    "topics": ("topics",),
    "jars": ("jars",),
    "submit": ("submit",),
    "agent": ("agent",),
    "ca": ("ca",),
    "feed": ("feed",),
}
"""Modules of this package and their commands, in the order in which `--help` lists them."""


def _directory(text: str) -> Path:
    """Raises typer.BadParameter for an empty name, which a script gives whose variable is not set."""
    if not text:
        raise typer.BadParameter("name a directory, or leave the option out")
    return Path(text)


def options(
    context: typer.Context,
    conf: Annotated[
        list[Path] | None,
        typer.Option(help="A TOML file that overrides conf/base.toml and conf/local.toml. May be repeated."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            parser=_directory, help="Data directory of the stack. Default: WAYSTATION_DATA, or the key `data`."
        ),
    ] = None,
    _: Version = False,
) -> None:
    """A messaging platform. Clients connect over MQTT or HTTP; Kafka carries their messages, Spark routes them, and
    Delta tables (the ledger) record every step. `up` runs it on your machine; `submit` runs its Spark applications on a
    cluster.

    First steps on one machine, each in its own terminal:

        waystation up
        waystation subscribe 'greetings/#'
        waystation publish greetings/world 'hello'
        waystation query "SELECT destination, qos, accepted FROM messages WHERE origin <> 'platform'"

    Every key of conf/base.toml can also be set in the environment: WAYSTATION_GATEWAY__MQTT_PORT=1884.
    """
    context.obj = Shared(conf or [], data, os.environ)


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The command line with the modules whose commands are among `words`; with all of them if none is."""
    app = new_application(options)
    asked = [name for name, commands in COMMANDS.items() if not set(commands).isdisjoint(words)]
    for name in [] if VERSION in words else asked or COMMANDS:
        import_module(f"jobs.cli.{name}").register(app)
    let_flow(app)
    return app


def main() -> None:
    """Run the command line. A WaystationError prints one sentence and sets its exit status, usually 1; never a
    traceback. If the reader of the output is gone, the program ends as SIGPIPE would end it, without a traceback
    too."""
    sys.exit(ends_quietly(_run))


def _run() -> int:
    try:
        application(sys.argv[1:])()
    except WaystationError as error:
        errors().print(visible(str(error)), style="red")
        return error.exit_status
    return 0


if __name__ == "__main__":
    main()
