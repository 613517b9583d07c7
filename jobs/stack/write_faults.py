"""What a supervisor cannot write at the moment, for example because the disk is full."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobs.stack.events import Event, NotWritten, WrittenAgain


class WriteFaults:
    """Reports what cannot be written once, and once more when it can be written again. The caller tries again later."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report
        self._faults: set[str] = set()

    def __contains__(self, what: str) -> bool:
        """Whether it could not be written the last time."""
        return what in self._faults

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Code that writes `what`, a name for people; its OSError is reported and goes no further."""
        try:
            yield
        except OSError as error:
            if what not in self._faults:
                self._faults.add(what)
                self._report(NotWritten(what, error.strerror or str(error)))
        else:
            if what in self._faults:
                self._faults.remove(what)
                self._report(WrittenAgain(what))
