"""`demo`: a day of real flights through a stack of its own."""

import signal
from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.context import shared
from jobs.cli.dates import DATE, date_of
from jobs.errors import JobError
from jobs.output import output
from jobs.runtime.signals import interrupt_on_signals

DEFAULT_DATE = "2013-12-02"
DIRECTORY = "demo"
INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    context: typer.Context,
    day: Annotated[
        date,
        typer.Option("--date", parser=date_of, metavar=DATE, help="A date in 2013. The default had the most flights."),
    ] = DEFAULT_DATE,  # type: ignore[assignment]
    speed: Annotated[float, typer.Option(min=1.0, help="Speed-up: 1440 replays a day in a minute.")] = 1440,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%H:%M"], help="Replay only flights that left before this time, New York time."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stack running at the end.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures to this file, as JSON.")] = None,
) -> None:
    """Replay a day of real flights: every aircraft is an MQTT client, offline while it is in the air.

    The demo starts its own stack (in `demo` in the data directory, on free ports), compares what each client received
    with its subscriptions, and stops the stack. The exit status is 0 only if no message was lost, duplicated, out of
    order or left incomplete.

    Examples:

        waystation demo
        waystation demo --date 2013-07-10 --speed 720 --keep
        waystation demo --until 07:00 --json build/demo.json
    """
    try:
        from jobs.demo.report import write_json
        from jobs.demo.run import Request, run
    except ModuleNotFoundError as error:
        raise JobError(f"the demo needs the Python package {error.name}: install it with `make env`") from error
    options, terminal = shared(context), output()
    interrupt_on_signals(signal.SIGTERM, signal.SIGHUP)
    request = Request(
        date=day,
        until=until.time() if until else None,
        speed=speed,
        keep=keep,
        data=options.data() / DIRECTORY,
        overlays=options.overlays,
        environ=options.environ,
        stop_timeout_s=options.settings().stack.stop_timeout_s,
    )
    try:
        result = run(request, terminal)
    except KeyboardInterrupt:
        terminal.print("interrupted; the stack has been stopped")
        raise typer.Exit(INTERRUPTED) from None
    if json is not None:
        write_json(json, result.figures)
    if not result.good:
        raise typer.Exit(1)
