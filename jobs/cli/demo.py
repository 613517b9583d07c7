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
        typer.Option("--date", parser=date_of, metavar=DATE, help="A day of 2013; this one had the most flights."),
    ] = DEFAULT_DATE,  # type: ignore[assignment]
    speed: Annotated[
        float, typer.Option(min=1.0, help="How many times as fast as it was: 1440 is a day a minute.")
    ] = 1440,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%H:%M"], help="Only flights that left before this time, New York's clock."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running, to look around.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures there, as JSON.")] = None,
) -> None:
    """Replay a day of real flights: every aircraft an MQTT client, offline while it is in the air.

    Starts a stack of its own (in `demo` under the data directory, on free ports), compares what each client received
    with what its subscriptions say, and stops the stack. The exit status is 0 only if nothing was lost, doubled, out of
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
        raise JobError(f"the demo needs the package {error.name}: install it with `make env`") from error
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
        terminal.print("interrupted: the stack has been stopped")
        raise typer.Exit(INTERRUPTED) from None
    if json is not None:
        write_json(json, result.figures)
    if not result.good:
        raise typer.Exit(1)
