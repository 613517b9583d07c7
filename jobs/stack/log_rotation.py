"""Rotates the logs of processes that keep their log file open and never reopen it: a JVM, or a child of one.

The head of a log is moved to another file while the processes go on appending. On Linux the file system removes the
head atomically (`fallocate` with FALLOC_FL_COLLAPSE_RANGE: ext4, XFS), so nothing is lost. Elsewhere the log is copied
and truncated: what is written in the microseconds between is lost.
"""

import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path
from typing import IO, NamedTuple

FALLOC_FL_COLLAPSE_RANGE = 0x08
"""linux/falloc.h"""
LONGEST_LINE = CHUNK = 1 << 20


class Limits(NamedTuple):
    """Maximum size of a log, bytes, and number of older files kept."""

    bytes: int
    files: int


def rotate(log: Path, limits: Limits) -> bool:
    """If `log` exceeds its limit, move its head to `log.1`, which becomes `log.2`, and so on; returns whether it did.

    Writers must have it open for appending. A line that is split is complete in `log.1`; its end is repeated at the
    beginning of `log`. Raises OSError if there is no space for it: then `log` stays as it is, and of the older files at
    most the oldest is gone.
    """
    new = log.with_name(f"{log.name}.new")
    try:
        if log.stat().st_size <= limits.bytes:
            return False
        if limits.files:  # the oldest goes anyway, and may make the space
            log.with_name(f"{log.name}.{limits.files}").unlink(missing_ok=True)
        with log.open("r+b") as file, new.open("wb") as copy:
            cut = _last_block(file)
            _check_space(log.parent, cut)
            _copy(file, copy, cut)
            copy.write(file.readline(LONGEST_LINE))
            end = copy.tell()
            _copy(file, copy, sys.maxsize)
            copy.flush()  # nothing below needs space, but for what is written from now on
            if limits.files:
                _shift(log, limits.files)
            if _collapse(file.fileno(), cut):
                copy.truncate(end)
            else:
                _copy_and_truncate(file, copy)
        if not limits.files:
            new.unlink()
    except FileNotFoundError:
        return False
    except OSError:
        new.unlink(missing_ok=True)
        raise
    return True


def tail(log: Path, count: int = 64 << 10) -> str:
    """The end of a log; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - count))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _last_block(file: IO[bytes]) -> int:
    """The start of the last block: only whole blocks can be removed, and never the last one."""
    status = os.fstat(file.fileno())
    return max(0, (status.st_size - 1) // status.st_blksize * status.st_blksize)


def _check_space(directory: Path, count: int) -> None:
    """A copy that cannot end must not fill the disk for nothing. Raises OSError if there is no space for `count`
    bytes."""
    if shutil.disk_usage(directory).free < count:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _copy_and_truncate(file: IO[bytes], copy: IO[bytes]) -> None:
    """Without space the rest is lost: not truncated, the log would be moved again and again."""
    try:
        _copy(file, copy, sys.maxsize)
        copy.flush()
    finally:
        os.ftruncate(file.fileno(), 0)


def _copy(file: IO[bytes], copy: IO[bytes], count: int) -> None:
    """Copies `count` bytes, or fewer if there are no more."""
    while count and (some := file.read(min(count, CHUNK))):
        copy.write(some)
        count -= len(some)


def _shift(log: Path, files: int) -> None:
    """`log.new` becomes `log.1`; the oldest is deleted."""
    for number in range(files, 1, -1):
        younger = log.with_name(f"{log.name}.{number - 1}")
        if younger.exists():
            younger.replace(log.with_name(f"{log.name}.{number}"))
    log.with_name(f"{log.name}.new").replace(log.with_name(f"{log.name}.1"))


def _collapse(descriptor: int, count: int) -> bool:
    """Remove `count` bytes from the beginning, atomically; False if the file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(descriptor, FALLOC_FL_COLLAPSE_RANGE, 0, count) == 0)
