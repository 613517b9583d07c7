"""The state directory of an adapter: its checkpoint, on disk, and a lock so that one process uses it (S2)."""

import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from edge.durable import lock_file, replace_file
from edge.feeds.adapter.resume import Checkpoint
from edge.feeds.errors import CheckpointError
from schemas.undecodable import UNDECODABLE

NAME: Final = "checkpoint.json"
BYTES_MAX: Final = 64 << 20


class CheckpointFile:
    """`with CheckpointFile(directory, source) as file:`. `source`: what the checkpoint is about. Entering makes the
    directory, and raises CheckpointError if another process has it."""

    def __init__(self, directory: Path, source: str) -> None:
        self._directory, self._path, self._source = directory, directory / NAME, source
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = lock_file(self._directory / "lock")
        except OSError as error:
            raise CheckpointError(f"state.directory {self._directory} cannot be used: {error.strerror}") from error
        if lock is None:
            raise CheckpointError(f"another adapter uses state.directory {self._directory}: give each its own")
        self._lock = lock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def read(self) -> Checkpoint | None:
        """What an earlier run has left about this source; None if there is nothing. Raises CheckpointError if it is
        damaged: an adapter does not silently read a file from its beginning."""
        try:
            if self._path.stat().st_size > BYTES_MAX:
                raise CheckpointError(f"{self._path} is larger than {BYTES_MAX} bytes: it is no checkpoint")
            found = msgspec.json.decode(self._path.read_bytes(), type=Checkpoint)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{self._path} cannot be read: {error.strerror}") from error
        except UNDECODABLE as error:
            raise CheckpointError(
                f"{self._path} is damaged ({error}): remove it, and a file is read from its beginning"
            ) from error
        return found if found.source == self._source else None

    def write(self, checkpoint: Checkpoint) -> None:
        """Puts it on disk. Raises CheckpointError."""
        try:
            replace_file(self._path, msgspec.json.encode(checkpoint))
        except OSError as error:
            raise CheckpointError(f"{self._path} cannot be written: {error.strerror}") from error
