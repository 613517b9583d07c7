"""A part of a stack, as data; in which order parts start, and how soon again."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from jobs.errors import StackError

LONGEST_PAUSE_S = 30.0


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


def levels(parts: Iterable[Part]) -> dict[str, int]:
    """The dependency level of each part: 0 if it depends on none. Raises StackError for an unknown name or a cycle."""
    waiting = {part.name: set(part.after) for part in parts}
    found: dict[str, int] = {}
    while waiting:
        free = {name: after for name, after in waiting.items() if after <= found.keys()}
        if not free:
            raise StackError(f"these parts depend on each other or on unknown parts: {', '.join(sorted(waiting))}")
        found |= {name: 1 + max((found[other] for other in after), default=-1) for name, after in free.items()}
        waiting = {name: after for name, after in waiting.items() if name not in free}
    return found


def pause_after(deaths: int, first_s: float) -> float:
    """The delay before the next start: `first_s` after the first death, doubling, at most 30 s."""
    return float(min(first_s * 2 ** min(deaths - 1, 30), LONGEST_PAUSE_S))
