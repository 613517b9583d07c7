"""`dispatcher`: runs the process that holds the MQTT port of a machine, for all gateways there (R1)."""

import os
import sys

import typer

from jobs.cli.context import shared
from jobs.errors import StackError


def register(app: typer.Typer) -> None:
    app.command()(dispatcher)


def dispatcher(context: typer.Context) -> None:
    """Run the dispatcher of this machine: it gives MQTT clients over TCP to the gateway that has their session.

    It reaches the gateways by gateway.cluster.sockets. If a dispatcher is running there, this one takes its place, and
    no client is refused. `waystation up --gateways 3` starts one by itself.

    Example: `waystation --conf site.toml dispatcher`
    """
    options = shared(context)
    if not options.settings().gateway.cluster.sockets:
        raise StackError(
            "gateway.cluster.sockets is empty: set it to the directory that the gateways of this machine have"
        )
    # In place of this process, so that signals and the exit status are its own.
    os.execve(sys.executable, [sys.executable, "-m", "gateway.dispatch"], options.application_environment())
