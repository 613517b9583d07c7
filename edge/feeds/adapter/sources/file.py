"""A file as a source: read to its end, or followed as it grows and is rotated (S2).

A file is known by device and inode, so after a restart it is found under another name beside its old one. Files that
are newer than it follow, by their time of change, and the one with the source's own name is the last. A rotated file is
read on until the one with the source's name has something in it, because its writer goes on in it until it opens the
new one. A file that became shorter than what was read of it is read from its beginning.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

from edge.feeds.adapter.parsing import ByteParser, MakeParser
from edge.feeds.adapter.resume import FilePlace
from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.adapter.sources.intake import Intake, Piece
from edge.feeds.adapter.sources.pace import Pace
from edge.feeds.errors import SourceUnusable
from edge.feeds.source import Found

_log = logging.getLogger("waystation.feed")
READ_BYTES: Final = 65_536
LOOK_S: Final = 0.02
"""How often a file that is followed is looked at."""


class FileSource:
    """`path`: the file; `place`: where an earlier run stopped; `follows`: it goes on at the end of the file.
    `reads_head`: the parser needs the first line of a file that is read from its middle. `pace`: as fast as the
    source's own times say; None: as fast as possible."""

    def __init__(
        self,
        path: Path,
        make: MakeParser,
        intake: Intake,
        place: FilePlace | None,
        *,
        follows: bool,
        reads_head: bool,
        pace: Pace | None,
    ) -> None:
        self._path, self._make, self._intake, self._place = path, make, intake, place
        self._follows, self._reads_head, self._pace = follows, reads_head, pace

    async def run(self) -> None:
        """Returns at the end, unless it follows. Raises SourceUnusable."""
        older = list(self._older())
        for path, offset in older:
            with self._open(path) as file:
                await self._read(file, offset, is_newest=path == older[-1][0])
        is_first = True
        while True:
            offset = self._place.offset if is_first and self._place is not None and self._is_place(self._path) else 0
            is_first = False
            file = await self._wait_for()
            with file:
                await self._read(file, offset, is_newest=True)
            if not self._follows:
                return

    def _older(self) -> Iterator[tuple[Path, int]]:
        """Files that were rotated away since the place, and where to begin in each."""
        if self._place is None or self._is_place(self._path):
            return
        beside = [one for one in self._path.parent.glob(f"{self._path.name}?*") if one.is_file()]
        found = next((one for one in beside if self._is_place(one)), None)
        if found is None:
            _log.error(
                "the file that was read last is neither %s nor beside it: what was not read of it is lost here",
                self._path,
            )
            return
        since = found.stat().st_mtime_ns
        yield found, self._place.offset
        newer = [one for one in beside if one != found and one.stat().st_mtime_ns > since]
        for one in sorted(newer, key=lambda one: one.stat().st_mtime_ns):
            yield one, 0

    def _is_place(self, path: Path) -> bool:
        try:
            found = path.stat()
        except OSError:
            return False
        return self._place is not None and (found.st_dev, found.st_ino) == (self._place.device, self._place.inode)

    async def _wait_for(self) -> FileIO:
        while True:
            try:
                file = self._open(self._path)
            except SourceUnusable:
                if not self._follows:
                    raise
                self._intake.is_now("source_lost", f"{self._path} is not there")
                await asyncio.sleep(LOOK_S)
            else:
                self._intake.is_now("up")
                return file

    def _open(self, path: Path) -> FileIO:
        try:
            return path.open("rb", buffering=0)
        except OSError as error:
            raise SourceUnusable(f"{path} cannot be read: {error.strerror}") from error

    async def _read(self, file: FileIO, offset: int, *, is_newest: bool) -> None:
        """Reads a file from `offset` to its end; the newest one, if it is followed, until its writer has left it."""
        found = os.fstat(file.fileno())
        if offset > found.st_size:
            _log.warning("%s is shorter than what was read of it: it is read from its beginning", self._path)
            offset = 0
        reading = _Reading(self._make(self._intake.highest()), found.st_dev, found.st_ino)
        if offset and self._reads_head:
            reading.begin_at(offset, file.readline(READ_BYTES))
        else:
            reading.begin_at(offset, b"")
        file.seek(offset)
        while True:
            data = file.read(READ_BYTES)
            if data:
                await self._hand_over(reading.feed(data))
                continue
            if not (is_newest and self._follows):
                break
            has_successor = self._has_successor(found)  # before the size: what was written before it is in the file
            size = os.fstat(file.fileno()).st_size
            if size < file.tell():
                _log.warning("%s became shorter: it is read from its beginning", self._path)
                await self._hand_over(reading.end())
                reading = _Reading(self._make(self._intake.highest()), found.st_dev, found.st_ino)
                file.seek(0)
            elif has_successor and size == file.tell():
                break
            else:
                await asyncio.sleep(LOOK_S)
        await self._hand_over(reading.end())

    def _has_successor(self, found: os.stat_result) -> bool:
        """Whether a writer has begun another file of the source's name."""
        try:
            present = self._path.stat()
        except OSError:
            return False  # perhaps the new one is about to be made
        return (present.st_dev, present.st_ino) != (found.st_dev, found.st_ino) and present.st_size > 0

    async def _hand_over(self, piece: Piece) -> None:
        if self._pace is None:
            await self._intake.take(piece)
            return
        async for part in self._pace.parts(piece):
            await self._intake.take(part)


class _Reading:
    """A parser of one file, and where in the file it is."""

    def __init__(self, parser: ByteParser, device: int, inode: int) -> None:
        self._parser, self._device, self._inode = parser, device, inode
        self._base = 0

    def begin_at(self, offset: int, head: bytes) -> None:
        self._parser.feed(head)
        self._base = offset - len(head)

    def feed(self, data: bytes) -> Piece:
        return self._piece(self._parser.feed(data))

    def end(self) -> Piece:
        return self._piece(self._parser.end())

    def _piece(self, found: list[Found]) -> Piece:
        place = FilePlace(self._device, self._inode, self._base + self._parser.position)
        return Piece(found, now_us(), place)
