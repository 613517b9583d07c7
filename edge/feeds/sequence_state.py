"""The state file of `waystation feed sequence`: the greatest number that may have been used, on disk before it is used.

It is written whole or not at all, and synced. One process at a time may use it: a lock on `FILE.lock` keeps others out,
and ends with the process.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from edge.durable import lock_file, replace_file
from edge.feeds.errors import SequenceStateError
from edge.feeds.sequence import Reserved
from edge.feeds.source import NUMBER_MAX
from schemas.undecodable import UNDECODABLE

STATE_BYTES_MAX: Final = 4_096


class SequenceState:
    """`with SequenceState(path) as state:`. Entering raises SequenceStateError if another process has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1

    def __enter__(self) -> Self:
        path = self._path.with_name(f"{self._path.name}.lock")
        try:
            lock = lock_file(path)
        except OSError as error:
            raise SequenceStateError(f"{path} cannot be opened: {error.strerror}") from error
        if lock is None:
            raise SequenceStateError(
                f"another process numbers lines with {self._path}: stop it, or use a file of its own"
            )
        self._lock = lock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def read(self) -> Reserved | None:
        """What an earlier run has left; None if there is no file. Raises SequenceStateError: numbering does not start
        over because a file is damaged."""
        try:
            with self._path.open("rb") as source:
                raw = source.read(STATE_BYTES_MAX)
            found = msgspec.json.decode(raw, type=Reserved)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SequenceStateError(f"{self._path} cannot be read: {error.strerror}") from error
        except UNDECODABLE as error:
            raise SequenceStateError(self._damaged(str(error))) from error
        if not 0 <= found.epoch <= NUMBER_MAX or not 0 <= found.number <= NUMBER_MAX:
            raise SequenceStateError(self._damaged("epoch or number is not possible"))
        return found

    def write(self, reserved: Reserved) -> None:
        """Puts it on disk. Raises SequenceStateError."""
        try:
            replace_file(self._path, msgspec.json.encode(reserved))
        except OSError as error:
            raise SequenceStateError(f"{self._path} cannot be written: {error.strerror}") from error

    def _damaged(self, why: str) -> str:
        return f"{self._path} is damaged ({why}): remove it to begin a new epoch, which subscribers see as a new stream"
