"""The files that a name has had, one after the other, as a log that is rotated has (S2).

A file is known by device and inode, so one that was rotated away is found under another name beside the one that has
the name now. Files that are newer than it follow, by their time of change. From the beginning on, each file that has
the name is open from when it was seen until it is read: it may be renamed or removed meanwhile.

A file system gives the inode of a removed file to the next one that is made, and a file may be overwritten in place. So
a file in which reading continues must also begin as it did.
"""

import contextlib
import logging
import os
import stat
import zlib
from collections import deque
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

from edge.feeds.adapter.resume import FilePlace
from edge.feeds.errors import SourceUnusable

_log = logging.getLogger("waystation.feed")
WAITING_MAX: Final = 100
"""Files that were seen and are not read yet. What is rotated away beyond is lost here, which is logged."""

HEAD_BYTES: Final = 1_024
"""By so much of its beginning a file is known, besides its inode."""

_Identity = tuple[int, int]


class Rotation:
    """`path`: the name. Close it at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._older: deque[FilePlace] = deque()  # rotated away before the beginning; where to begin in each
        self._waiting: deque[tuple[FileIO, int]] = deque()
        self._newest: _Identity | None = None
        self._is_full = False

    def open(self, place: FilePlace | None, *, may_be_missing: bool) -> None:
        """Begins at a place that an earlier run has reached, or else with the file that has the name. Raises
        SourceUnusable."""
        try:
            self.look()
        except SourceUnusable:
            if not may_be_missing:
                raise
        if place is not None:
            self._begin_at(place)

    def look(self) -> None:
        """To be called often: sees whether another file has the name. Raises SourceUnusable if none can be read."""
        try:
            if _identity(self._path.stat()) == self._newest:
                return
            if len(self._waiting) >= WAITING_MAX:
                if not self._is_full:
                    _log.error("%d rotated files of %s wait to be read: the next are lost", WAITING_MAX, self._path)
                self._is_full = True
                return
            file = self._path.open("rb", buffering=0)
        except OSError as error:
            raise SourceUnusable(f"{self._path} cannot be read: {error.strerror}") from error
        self._is_full = False
        self._newest = _identity(os.fstat(file.fileno()))
        self._waiting.append((file, 0))

    def next(self) -> tuple[FileIO, int] | None:
        """The next file, which the caller closes, and where to begin in it; None if there is none yet. Raises
        SourceUnusable."""
        while self._older:
            place = self._older.popleft()
            file = self._found(place)
            if file is not None:
                return file, place.offset
            _log.error("a rotated file of %s has been compressed, replaced or removed: it is lost here", self._path)
        return self._waiting.popleft() if self._waiting else None

    @property
    def is_written(self) -> bool:
        """Whether a writer has begun a later file than the last that :meth:`next` gave. Until then it may go on in that
        one, though another has its name."""
        return bool(self._older) or any(os.fstat(file.fileno()).st_size for file, _ in self._waiting)

    def close(self) -> None:
        """Closes the files that were not read."""
        for file, _ in self._waiting:
            file.close()
        self._waiting.clear()

    def _begin_at(self, place: FilePlace) -> None:
        first = place.device, place.inode
        if self._newest == first:
            file, _ = self._waiting.popleft()
            is_same = _is_same(file, place)
            self._waiting.append((file, place.offset if is_same else 0))
            if not is_same:
                _log.error(
                    "%s was replaced or overwritten: it is read from its beginning, and what was not read of the "
                    "earlier one is lost here",
                    self._path,
                )
            return
        beside = [found for _, found in self._beside()]
        since = next((found.st_mtime_ns for found in beside if _identity(found) == first), None)
        if since is None:
            _log.error(
                "the file that was read last is neither %s nor beside it: what was not read of it is lost here",
                self._path,
            )
            return
        newer = [
            found for found in beside if found.st_mtime_ns > since and _identity(found) not in (first, self._newest)
        ]
        self._older.append(place)
        newer.sort(key=lambda found: found.st_mtime_ns)
        self._older.extend(FilePlace(*_identity(found), offset=0) for found in newer)

    def _beside(self) -> Iterator[tuple[Path, os.stat_result]]:
        for one in self._path.parent.glob(f"{self._path.name}?*"):
            with contextlib.suppress(FileNotFoundError):
                found = one.stat()
                if stat.S_ISREG(found.st_mode):
                    yield one, found

    def _found(self, place: FilePlace) -> FileIO | None:
        identity = place.device, place.inode
        for path, found in self._beside():
            if _identity(found) != identity:
                continue
            try:
                file = path.open("rb", buffering=0)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise SourceUnusable(f"{path} cannot be read: {error.strerror}") from error
            if _identity(os.fstat(file.fileno())) == identity and _is_same(file, place):
                return file
            file.close()  # it was renamed just now, or is another one
        return None


def head_of(file: FileIO, offset: int) -> int:
    """What the part of a file before `offset` begins with, as a number (CRC-32)."""
    return zlib.crc32(os.pread(file.fileno(), min(offset, HEAD_BYTES), 0))


def _is_same(file: FileIO, place: FilePlace) -> bool:
    return place.head is None or place.head == head_of(file, place.offset)


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino
