"""`waystation feed …`: what stands between a source and the adapters of a redundant feed (S2)."""

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

BLOCK: Final = 10_000


def commands() -> typer.Typer:
    """The group `feed`."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.callback()(feed)
    app.command()(adapter)
    app.command()(sequence)
    return app


def names() -> set[str]:
    """Of the commands here; the platform, if it is installed, adds others to the group."""
    known = commands().registered_commands
    return {command.name or command.callback.__name__ for command in known if command.callback is not None}


def feed() -> None:
    """Redundant feeds: two adapters follow the same source and publish it twice, so that one may fail. If the platform
    is installed, also their administration and their logs.

        waystation feed adapter --example > adapter.toml
        waystation feed adapter --config adapter.toml
        source | waystation feed sequence --state numbers.json | tee >(nc host-a 5000) | nc host-b 5000
    """


def adapter(
    config: Annotated[Path | None, typer.Option(help="The adapter's settings, a TOML file.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a settings file that explains each key.")] = False,
) -> None:
    """Follow a source and publish it to one slot of a feed, in the foreground, until Ctrl-C or SIGTERM.

    The other slot is for a second adapter on another machine. If one with the same slot runs already, this one waits
    until it is gone.
    """
    from edge.feeds.adapter.settings import example as example_text
    from edge.feeds.adapter.settings import load
    from schemas.errors import SettingsError

    if example:
        typer.echo(example_text(), nl=False)
        return
    if config is None:
        raise SettingsError("give the settings with --config FILE; --example prints a file to begin with")
    settings = load(config)
    from edge.feeds.adapter.process import run

    run(settings, typer.echo)


def sequence(
    file: Annotated[
        Path | None, typer.Argument(help="Lines to number, the first one 1; without it those of the standard input.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Where numbering continues after a restart, crash or power cut. Without it: a new epoch."),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**63 - 1, help="Names the series of numbers; greater for a new one. Default: the time."
        ),
    ] = None,
    block: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000_000,
            help="How many numbers a write to the state file reserves. A crash skips at most so many.",
        ),
    ] = BLOCK,
) -> None:
    """Number lines once, in front of receivers that are all given the same numbered lines: the numbers are what two
    adapters agree on, where the source has none. Writes EPOCH:NUMBER, a tab and the line to the standard output.

    With --state a number is never used twice. After a crash some are left out, which subscribers see as a gap. A FILE
    needs no state: with the same --epoch its lines get the same numbers each time. Empty lines are left out.
    """
    from edge.feeds.sequence_command import sequence as number_lines
    from schemas.errors import SettingsError

    if file is not None and state is not None:
        raise SettingsError(
            "a file's lines get the same numbers each time: remove --state and set --epoch, or pipe the file"
        )
    new_epoch = time.time_ns() // 1_000
    output = sys.stdout.fileno()
    if file is None:
        number_lines(sys.stdin.fileno(), output, state, new_epoch, epoch=epoch, block=block)
        return
    try:
        source = file.open("rb", buffering=0)
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    with source:
        number_lines(source.fileno(), output, None, new_epoch, epoch=epoch, block=block)
