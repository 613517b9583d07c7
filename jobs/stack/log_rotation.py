"""Rotates the logs of processes that keep their log file open and never reopen it: a JVM, or a child of one.

The head of a log is moved to another file while the processes go on appending. On Linux the file system removes the
head atomically (`fallocate` with FALLOC_FL_COLLAPSE_RANGE: ext4, XFS), so nothing is lost. Elsewhere the log is copied
and truncated: what is written in the microseconds between is lost.
"""

import ctypes
import os
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
    beginning of `log`.
    """
    try:
        if log.stat().st_size <= limits.bytes:
            return False
        with log.open("r+b") as file:
            cut, new = _last_block(file), log.with_name(f"{log.name}.new")
            with new.open("wb") as copy:
                _copy(file, copy, cut)
                copy.write(file.readline(LONGEST_LINE))
                if limits.files:
                    _shift(log, limits.files)
                if not _collapse(file.fileno(), cut):
                    _copy(file, copy, sys.maxsize)
                    os.ftruncate(file.fileno(), 0)
            if not limits.files:
                new.unlink()
    except FileNotFoundError:
        return False
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
