"""`router replace`: replaces the running routers by another version, while messages flow (R5)."""

import uuid
from enum import StrEnum
from typing import Annotated

import typer

from jobs.cli.context import shared
from jobs.cli.replacement import INTERPRETER, configuration_of, follow, ready_state
from jobs.stack import replacing
from jobs.stack.replacing import Request


class Role(StrEnum):
    ACTIVE = "active"
    BACKUP = "backup"
    BOTH = "both"


def register(app: typer.Typer) -> None:
    router = typer.Typer(no_args_is_help=True, help="Manage the routers of the running stack.")
    router.command()(replace)
    app.add_typer(router, name="router")

    @router.callback()
    def routers() -> None:
        """Manage the routers of the running stack."""


def replace(
    context: typer.Context,
    role: Annotated[
        Role, typer.Option(help="Router to replace. If both run in one process, only `both` is possible.")
    ] = Role.BOTH,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds within which each new process must catch up with the old one.")
    ] = 300.0,
) -> None:
    """Replace the running routers, one after the other, with the version of this installation. Messages keep flowing.

    A new process starts alongside the old one, from the old one's position. Once it has caught up, the old one stops.
    If it does not catch up in time, it is stopped, the old one keeps running, and the exit status is 1.

    Examples:

        waystation router replace                    after an update in place
        new/bin/waystation router replace            a version installed beside the old one
        waystation router replace --role backup      try the new version with one router first
    """
    options = shared(context)
    data, state = options.data(), ready_state(options.data())
    request = Request(
        id=uuid.uuid4().hex,
        roles=["active", "backup"] if role is Role.BOTH else [role.value],
        interpreter=INTERPRETER,
        configuration=[str(path) for path in configuration_of(options, state)],
        timeout_s=timeout,
    )
    options.settings()  # report settings that the new version would refuse
    replacing.ask(data, request)
    follow(data, lambda: replacing.answer_to(data, request.id))
