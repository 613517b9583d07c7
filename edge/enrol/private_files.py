"""Files that only their owner may read, written whole or not at all: a crash leaves the old content or the new."""

import os
from pathlib import Path

from edge.enrol.errors import IdentityFilesError

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def make_directory(directory: Path) -> None:
    """Makes it, with those above it, if there is none; all that are made are private. Raises IdentityFilesError."""
    try:
        for one in (*reversed(directory.parents), directory):
            if not one.is_dir():
                one.mkdir(DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise IdentityFilesError(f"{directory} cannot be made: {error.strerror}") from error


def write(path: Path, content: bytes) -> None:
    """Puts the content in place of the file's, on disk when this returns. Raises IdentityFilesError."""
    beside = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, FILE_MODE)
        with open(descriptor, "wb") as output:
            os.fchmod(descriptor, FILE_MODE)
            output.write(content)
            output.flush()
            os.fsync(descriptor)
        beside.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise IdentityFilesError(f"{path} cannot be written: {error.strerror}") from error


def read(path: Path, what: str) -> bytes:
    """The file's content; `what` describes it in the error. Raises IdentityFilesError."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise IdentityFilesError(f"there is no {what}: {path} does not exist") from error
    except OSError as error:
        raise IdentityFilesError(f"{path} ({what}) cannot be read: {error.strerror}") from error


def _sync(directory: Path) -> None:
    """The names in a directory survive a power cut, too."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
