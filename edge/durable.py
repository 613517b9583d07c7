"""What a file system has to be asked for beyond writing, so that it outlives a power cut; and a file as a lock."""

import errno
import os
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from threading import get_ident

FILE_MODE = 0o644
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that is full, or of a quota that is used up."""
_PROBE_BYTES = 65_536


def sync_directory(folder: Path) -> None:
    """Makes the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def has_space(folder: Path) -> bool:
    """Whether a little more can be written in a folder. True too if that fails for another reason than space."""
    probe = folder / f".space-{os.getpid()}-{get_ident()}"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, bytes(_PROBE_BYTES))
            os.fsync(descriptor)
            return os.fstat(descriptor).st_size == _PROBE_BYTES
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as error:
        return error.errno not in NO_SPACE


def replace_file(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """Writes a file whole or not at all, and durably. `mode`: its permissions, which the umask may restrict. Raises
    OSError."""
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as output:
        os.fchmod(descriptor, os.fstat(descriptor).st_mode & mode)  # one that a crash has left may allow more
        output.write(content)
        output.flush()
        os.fsync(descriptor)
    beside.replace(path)
    sync_directory(path.parent)


def lock_file(path: Path) -> int | None:
    """Locks a file for this process, and makes it if there is none; the descriptor, or None if another process has it.
    The lock ends when the descriptor is closed, or with the process. Raises OSError if the file cannot be opened."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
