"""What a supervisor reports."""

from typing import NamedTuple


class Ready(NamedTuple):
    """A part has become ready, `seconds` after its start."""

    part: str
    seconds: float


class Died(NamedTuple):
    """A part has ended, or was killed for not being ready in time; it is restarted after `pause_s`."""

    part: str
    why: str
    pause_s: float


class Stopped(NamedTuple):
    """A part was stopped, alone or together with the others of its dependency level; not `clean` if any had to be
    killed."""

    part: str
    clean: bool


class Replaced(NamedTuple):
    """A candidate has replaced a part's process; it had caught up `seconds` after its start, and the old process has
    ended."""

    part: str
    seconds: float


class NotReplaced(NamedTuple):
    """A part keeps its old process, and the candidate has ended."""

    part: str
    why: str


class NotWritten(NamedTuple):
    """A file of the stack cannot be written, and is tried again until it can. The parts go on."""

    file: str
    why: str


class WrittenAgain(NamedTuple):
    """A file of which :class:`NotWritten` was reported is up to date again."""

    file: str


Event = Ready | Died | Stopped | Replaced | NotReplaced | NotWritten | WrittenAgain
