"""What the commands that replace parts of a running stack have in common (R5)."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from jobs.cli.context import OVERLAYS, Shared
from jobs.errors import StackError
from jobs.output import output
from jobs.stack.requests import Answer
from jobs.stack.state import StackState, running_state

POLL_S = 0.1
INTERPRETER = [sys.executable, "-P"]
"""Runs this installation's version. The option imports modules from the installation, not from the directory in which
`up` was called."""


def ready_state(data: Path) -> StackState:
    """The stack of this directory. Raises StackError if none runs, or it is still starting."""
    state = running_state(data)
    if not state.ready:
        raise StackError(
            "some parts of the stack are still starting: try again once `waystation status` shows all as ready"
        )
    return state


def configuration_of(options: Shared, state: StackState) -> list[Path]:
    """This installation's files, then those given here, or else those given to `up`."""
    if options.overlays:
        return options.configuration
    return options.configuration + [Path(path) for path in state.configuration[len(OVERLAYS) :]]


def follow(data: Path, answer_so_far: Callable[[], Answer | None]) -> None:
    """Show the supervisor's progress until it is done. Raises StackError if it has failed, or `up` ends first."""
    terminal, shown = output(), 0
    while True:
        try:
            running_state(data)
            ended = False
        except StackError:
            ended = True
        answer = answer_so_far()
        for line in answer.lines[shown:] if answer else []:
            terminal.print(line)
        shown = len(answer.lines) if answer else shown
        if answer and answer.over:
            if answer.error:
                raise StackError(answer.error)
            return
        if ended:
            raise StackError(
                f"the stack in {data} ended during the replacement: start it with `waystation up` and read its output"
            )
        time.sleep(POLL_S)
