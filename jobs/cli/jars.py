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
            metavar="[STORE]...", help=f"Also download the libraries for this object store: {', '.join(STORES)}."
        ),
    ] = None,
) -> None:
    """Download the JVM libraries into the cache: Kafka, Delta, Spark's Kafka source, and those for object stores.

    Commands that need the libraries download them themselves. Use this command to build images, or to prepare a machine
    that will be offline.

    Examples:

        waystation jars
        waystation jars s3
    """
    wanted = stores or []
    if unknown := sorted(set(wanted) - set(STORES)):
        raise JarsError(f"unknown object store {', '.join(unknown)}: choose from {', '.join(STORES)}")
    for kind in ("", *wanted):
        typer.echo(f"JVM libraries: {sets.resolve(os.environ, sets.say, STORES.get(kind, sets.LOCAL))}")
