"""Supervisors ticked by hand."""

from collections.abc import Callable

from jobs.stack.process import wait_until
from jobs.stack.supervisor import Supervisor

DEADLINE_S = 30.0


def tick_until(supervisor: Supervisor, condition: Callable[[], bool]) -> None:
    def looked() -> bool:
        supervisor.tick()
        return condition()

    assert wait_until(looked, DEADLINE_S)
