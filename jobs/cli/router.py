"""`router replace`: replaces the running routers by another version, while messages flow (R5)."""

import sys
import time
import uuid
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.context import OVERLAYS, Shared, shared
from jobs.errors import StackError
from jobs.output import output
from jobs.stack import replacing
from jobs.stack.replacing import Answer, Request
from jobs.stack.state import StackState, running_state

POLL_S = 0.1
SAFE_PATH = "-P"
"""Interpreter option: import modules from the installation, not from the directory in which `up` was called."""


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
    data, state = options.data(), running_state(options.data())
    if not state.ready:
        raise StackError(
            "some parts of the stack are still starting: try again once `waystation status` shows all as ready"
        )
    request = Request(
        id=uuid.uuid4().hex,
        roles=["active", "backup"] if role is Role.BOTH else [role.value],
        interpreter=[sys.executable, SAFE_PATH],
        configuration=[str(path) for path in _configuration(options, state)],
        timeout_s=timeout,
    )
    options.settings()  # report settings that the new version would refuse
    replacing.ask(data, request)
    answer = _follow(data, request.id)
    if answer.error:
        raise StackError(answer.error)


def _configuration(options: Shared, state: StackState) -> list[Path]:
    """This installation's files, then those given here, or else those given to `up`."""
    if options.overlays:
        return options.configuration
    return options.configuration + [Path(path) for path in state.configuration[len(OVERLAYS) :]]


def _follow(data: Path, request_id: str) -> Answer:
    """Show the supervisor's progress until it is done. Raises StackError if `up` ends first."""
    terminal, shown = output(), 0
    while True:
        try:
            running_state(data)
            ended = False
        except StackError:
            ended = True
        answer = replacing.answer_to(data, request_id)
        for line in answer.lines[shown:] if answer else []:
            terminal.print(line)
        shown = len(answer.lines) if answer else shown
        if answer and answer.over:
            return answer
        if ended:
            raise StackError(
                f"the stack in {data} ended during the replacement: start it with `waystation up` and read its output"
            )
        time.sleep(POLL_S)
