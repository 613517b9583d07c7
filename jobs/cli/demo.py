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
SPEED = 1440.0
MESH_SPEED = 1100.0
"""Slower: airports' and aircraft's agents need a second or two for what they do while an aircraft stands."""
INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    context: typer.Context,
    day: Annotated[
        date,
        typer.Option("--date", parser=date_of, metavar=DATE, help="A date in 2013. The default had the most flights."),
    ] = DEFAULT_DATE,  # type: ignore[assignment]
    speed: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Speed-up: 1440, the default, replays a day in a minute. With --mesh 1100, with --feeds 40.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            formats=["%H:%M"],
            help="Replay only flights that left before this time, New York time. With --feeds frames, Paris time.",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stack running at the end.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures to this file, as JSON.")] = None,
    mesh: Annotated[
        bool, typer.Option("--mesh", help="With agents at airports and on aircraft, which carry messages.")
    ] = False,
    feeds: Annotated[
        bool, typer.Option("--feeds", help="A flight's radio frames on two lossy ways, and one stream of them.")
    ] = False,
    seed: Annotated[int, typer.Option(help="With --mesh and --feeds: draws other outages, messages and losses.")] = 1,
) -> None:
    """Replay a day of real flights: every aircraft is an MQTT client, offline while it is in the air.

    The demo starts its own stack (in `demo` in the data directory, on free ports), compares what each client received
    with its subscriptions, and stops the stack. The exit status is 0 only if no message was lost, duplicated, out of
    order or left incomplete.

    With --mesh, agents run at ten airports and on forty aircraft. Airports lose their uplink for hours; their messages
    leave with the next aircraft. The exit status is 0 only if no message was lost or doubled.

    With --feeds it replays the Mode S frames of the first 40 minutes of a flight in a minute. Two ways lose 1 % of them
    each; an adapter on each way writes to Kafka, and is killed and started again; a subscriber reads one stream, and is
    restarted. The exit status is 0 only if nothing is missing or doubled, and all that both ways lost is reported. The
    first run downloads the recording (28 MB) with pip. No Spark runs.

    Examples:

        waystation demo
        waystation demo --date 2013-07-10 --speed 720 --keep
        waystation demo --until 07:00 --json build/demo.json
        waystation demo --mesh --seed 2
        waystation demo --feeds
        waystation demo --feeds --until 11:00 --speed 80      the whole flight
    """
    _refuse_what_does_not_fit(context, mesh, feeds)
    try:
        from jobs.demo import feed_run, mesh_run
        from jobs.demo.report import write_json
        from jobs.demo.run import Request, run
    except ModuleNotFoundError as error:
        raise JobError(f"the demo needs the Python package {error.name}: install it with `make env`") from error
    options, terminal = shared(context), output()
    interrupt_on_signals(signal.SIGTERM, signal.SIGHUP)
    request = Request(
        date=day,
        until=until.time() if until else None,
        speed=speed or (feed_run.SPEED if feeds else MESH_SPEED if mesh else SPEED),
        keep=keep,
        data=options.data() / DIRECTORY,
        overlays=options.overlays,
        environ=options.environ,
        stop_timeout_s=options.settings().stack.stop_timeout_s,
    )
    try:
        if feeds:
            result = feed_run.run(request, seed, options.settings().kafka.prefix, terminal)
        else:
            result = mesh_run.run(request, seed, terminal) if mesh else run(request, terminal)
    except KeyboardInterrupt:
        terminal.print("interrupted; the stack has been stopped")
        raise typer.Exit(INTERRUPTED) from None
    if json is not None:
        write_json(json, result.figures)
    if not result.good:
        raise typer.Exit(1)


def _refuse_what_does_not_fit(context: typer.Context, mesh: bool, feeds: bool) -> None:
    """Raises JobError if options contradict each other."""
    if feeds and mesh:
        raise JobError("--feeds and --mesh are two demos: choose one")
    source = context.get_parameter_source("day")
    if feeds and source is not None and source.name == "COMMANDLINE":
        raise JobError("--feeds replays one recording: remove --date")
