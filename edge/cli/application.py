"""What the command lines of a device and of the platform have in common: how they look, and `--version`."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from schemas.version import installed_version

VERSION: Final = "--version"


def new_application(options: Callable[..., None]) -> typer.Typer:
    """A command line without commands; `options` takes the options before them, and its docstring is the help."""
    app = typer.Typer(
        name="waystation",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"waystation {installed_version()}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option(VERSION, callback=_show_version, is_eager=True, help="Print the version and exit.")
]


def options(_: Version = False) -> None:
    """Waystation on a device: the agent, which keeps messages while there is no network and hands them over when there
    is one.

    The platform's commands, such as `up` and `publish`, are there once the distribution `waystation` is installed.
    """
