"""Bounding the logs of processes that have their log open and never look at it again: a JVM, a child of it.

The head of a log is moved to a file of its own while they go on appending. On Linux the file system takes the head
away in one step (`fallocate` with FALLOC_FL_COLLAPSE_RANGE: ext4, XFS), so that nothing is lost. Elsewhere the log is
copied and truncated: what is written between these two, within microseconds, is lost.
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
    """How large a log may become, bytes, and how many older files are kept beside it."""

    bytes: int
    files: int


def rotate(log: Path, limits: Limits) -> bool:
    """If `log` is larger than its limit, move its head to `log.1`, which becomes `log.2`, and so on; whether it was.

    Whoever writes to it must have it open for appending. A line that the cut goes through is whole in `log.1`; its end
    is also the beginning of `log`.
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
    """Where it begins: whole blocks alone can be taken away, and never the last one."""
    status = os.fstat(file.fileno())
    return max(0, (status.st_size - 1) // status.st_blksize * status.st_blksize)


def _copy(file: IO[bytes], copy: IO[bytes], count: int) -> None:
    """So many bytes, or all there are."""
    while count and (some := file.read(min(count, CHUNK))):
        copy.write(some)
        count -= len(some)


def _shift(log: Path, files: int) -> None:
    """`log.new` becomes `log.1`; the oldest goes."""
    for number in range(files, 1, -1):
        younger = log.with_name(f"{log.name}.{number - 1}")
        if younger.exists():
            younger.replace(log.with_name(f"{log.name}.{number}"))
    log.with_name(f"{log.name}.new").replace(log.with_name(f"{log.name}.1"))


def _collapse(descriptor: int, count: int) -> bool:
    """Take so many bytes away at the beginning, in one step; whether the file system can."""
    if not sys.platform.startswith("linux"):
        return False
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(descriptor, FALLOC_FL_COLLAPSE_RANGE, 0, count) == 0)
