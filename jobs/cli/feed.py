"""`feed`: the commands of the edge, so that `--help` lists them beside the platform's."""

import typer

from edge.cli.feed import commands


def register(app: typer.Typer) -> None:
    app.add_typer(commands(), name="feed")
