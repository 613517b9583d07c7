"""`jars`: downloads the JVM libraries before they are needed."""

import os
from typing import Annotated

import typer

from jobs.errors import JarsError
from jobs.stack import jars as sets
from jobs.stack.jars import STORES


def register(app: typer.Typer) -> None:
    app.command()(jars)


def jars(
    stores: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STORE]...", help=f"Object stores whose libraries are wanted too: {', '.join(STORES)}."
        ),
    ] = None,
) -> None:
    """Download the JVM libraries into the cache: Kafka, Delta, Spark's Kafka source, and those of object stores.

    Commands that need them download them by themselves. This command is for images, and for machines that will be
    offline later.

    Examples:

        waystation jars
        waystation jars s3
    """
    wanted = stores or []
    if unknown := sorted(set(wanted) - set(STORES)):
        raise JarsError(f"no JVM libraries are known for {', '.join(unknown)}; there are: {', '.join(STORES)}")
    for kind in ("", *wanted):
        typer.echo(f"JVM libraries: {sets.resolve(os.environ, sets.say, STORES.get(kind, sets.LOCAL))}")
