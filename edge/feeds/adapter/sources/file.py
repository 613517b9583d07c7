"""A file as a source: read to its end, or followed as it grows and is rotated (S2).

A rotated file is read on until the one with the source's name has something in it, because its writer goes on in it
until it opens the new one. Several writers do not open it at once: then the rotated file is read for some time longer.
Files that are rotated while the reader waits are read in turn (:mod:`.rotation`). A file
that became shorter than what was read of it is read from its beginning.
"""

import asyncio
import contextlib
import logging
import os
from io import FileIO
from pathlib import Path
from typing import Final

from edge.feeds.adapter.parsing import ByteParser, MakeParser
from edge.feeds.adapter.resume import FilePlace
from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.adapter.sources.intake import Intake, Piece
from edge.feeds.adapter.sources.pace import Pace
from edge.feeds.adapter.sources.rotation import HEAD_BYTES, Rotation, head_of
from edge.feeds.errors import SourceUnusable
from edge.feeds.source import Found

_log = logging.getLogger("waystation.feed")
READ_BYTES: Final = 65_536
LOOK_S: Final = 0.02
"""How often a file that is followed is looked at."""


class FileSource:
    """`path`: the file; `place`: where an earlier run stopped; `follows`: it goes on at the end of the file.
    `reads_head`: the parser needs the first line of a file that is read from its middle. `pace`: as fast as the
    source's own times say; None: as fast as possible. `rotate_wait_s`: for so long a rotated file is read on after the
    one behind it was written to."""

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
        rotate_wait_s: float = 0.0,
    ) -> None:
        self._path, self._make, self._intake, self._place = path, make, intake, place
        self._follows, self._reads_head, self._pace = follows, reads_head, pace
        self._rotate_wait_s = rotate_wait_s
        self._rotation = Rotation(path)

    async def run(self) -> None:
        """Returns at the end, unless it follows. Raises SourceUnusable."""
        with contextlib.closing(self._rotation):
            self._rotation.open(self._place, may_be_missing=self._follows)
            if self._follows:
                await self._follow()
            while (found := self._rotation.next()) is not None:
                await self._read(*found)

    async def _follow(self) -> None:
        """For ever."""
        looking = asyncio.create_task(self._look())
        try:
            while True:
                found = self._rotation.next()
                if found is None:
                    self._intake.is_now("source_lost", f"{self._path} is not there")
                    await asyncio.sleep(LOOK_S)
                else:
                    self._intake.is_now("up")
                    await self._read(*found)
        finally:
            looking.cancel()

    async def _look(self) -> None:
        """Also while the reader waits."""
        while True:
            with contextlib.suppress(SourceUnusable):  # perhaps the new one is about to be made
                self._rotation.look()
            await asyncio.sleep(LOOK_S)

    async def _read(self, file: FileIO, offset: int) -> None:
        """Reads a file from `offset` to its end; if it is followed, until its writer has left it. Closes it."""
        with file:
            if offset > os.fstat(file.fileno()).st_size:
                _log.warning("%s is shorter than what was read of it: it is read from its beginning", self._path)
                offset = 0
            reading = _Reading(self._make(self._intake.highest()), file)
            if offset and self._reads_head:
                reading.begin_at(offset, file.readline(READ_BYTES))
            else:
                reading.begin_at(offset, b"")
            file.seek(offset)
            leave_at: float | None = None
            while True:
                data = file.read(READ_BYTES)
                if data:
                    await self._hand_over(reading.feed(data))
                    continue
                if not self._follows:
                    break
                now = asyncio.get_running_loop().time()
                if leave_at is None and self._rotation.is_written:
                    leave_at = now + self._rotate_wait_s
                is_left = leave_at is not None and now >= leave_at  # before the size: what came before is in the file
                size = os.fstat(file.fileno()).st_size
                if size < file.tell():
                    _log.warning("%s became shorter: it is read from its beginning", self._path)
                    await self._hand_over(reading.end())
                    reading = _Reading(self._make(self._intake.highest()), file)
                    file.seek(0)
                elif is_left and size == file.tell():
                    break
                else:
                    await asyncio.sleep(LOOK_S)
            await self._hand_over(reading.end())

    async def _hand_over(self, piece: Piece) -> None:
        if self._pace is None:
            await self._intake.take(piece)
            return
        async for part in self._pace.parts(piece):
            await self._intake.take(part)


class _Reading:
    """A parser of one file, and where in the file it is."""

    def __init__(self, parser: ByteParser, file: FileIO) -> None:
        found = os.fstat(file.fileno())
        self._parser, self._file, self._device, self._inode = parser, file, found.st_dev, found.st_ino
        self._base = 0
        self._head: int | None = None  # once all of it was read

    def begin_at(self, offset: int, head: bytes) -> None:
        self._parser.feed(head)
        self._base = offset - len(head)

    def feed(self, data: bytes) -> Piece:
        return self._piece(self._parser.feed(data))

    def end(self) -> Piece:
        return self._piece(self._parser.end())

    def _piece(self, found: list[Found]) -> Piece:
        offset = self._base + self._parser.position
        head = self._head
        if head is None:
            head = head_of(self._file, offset)
            self._head = head if offset >= HEAD_BYTES else None
        return Piece(found, now_us(), FilePlace(self._device, self._inode, offset, head))
