"""Files that only their owner may read, written whole or not at all: a crash leaves the old content or the new."""

from pathlib import Path

from edge.durable import replace_file
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
    try:
        replace_file(path, content, FILE_MODE)
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
