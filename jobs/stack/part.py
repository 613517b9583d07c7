"""A part of a stack, as data."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


def always() -> bool:
    return True


class Part(NamedTuple):
    """A part of a stack.

    `argv` empty: not a process but a step, done when `ready` says so. `env` is added to the supervisor's environment.
    `ready` gives the part's listeners by name, or None while it is not ready; it may block for about a second.
    `niceness` is how far the part lowers its priority while it `may_lower_priority`, which is asked every second once
    all parts have been ready: until then all of them wait for it. `niceness_alongside` is how far a candidate lowers
    its priority until it has caught up, and the replaced process when it leaves; it may be
    :data:`jobs.stack.process.IDLE`. `takes_over`: a new process takes the place of the running one by itself, which
    then ends.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready: Callable[[], Mapping[str, str] | None]
    after: tuple[str, ...] = ()
    niceness: int = 0
    niceness_alongside: int = 0
    may_lower_priority: Callable[[], bool] = always
    takes_over: bool = False
