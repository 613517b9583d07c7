"""Numbering the lines of a source, once, in front of receivers that are all given the same numbered lines (S2).

`EPOCH:NUMBER<TAB>line`, read by :mod:`edge.feeds.formats.lines`. Lines pass as they come, however long. Empty lines are
left out. A last line without an end gets one.

Numbers are **reserved** in blocks before they are used: the greatest reserved number is on disk first. After a crash
numbering continues above it, so that no number is used twice; the rest of a block is then a gap.
"""

from collections.abc import Iterator

from msgspec import Struct

from edge.feeds.source import NUMBER_MAX
from feeds.errors import FeedSettingsError


class Reserved(Struct, frozen=True):
    """What is on disk: numbers up to `number` may have been used. `is_in_order`: the last run has ended in order, so
    its last line is complete."""

    epoch: int
    number: int
    is_in_order: bool


class Sequencer:
    """Numbers lines. `start`: what an earlier run has left, or number 0 of a new epoch; `block`: how many numbers are
    reserved at a time."""

    def __init__(self, start: Reserved, block: int) -> None:
        if not 0 <= start.epoch <= NUMBER_MAX:
            raise FeedSettingsError(f"an epoch is 0 to {NUMBER_MAX}, unlike {start.epoch}")
        if block < 1:
            raise FeedSettingsError(f"a block has at least one number, not {block}")
        self._epoch = start.epoch
        self._block = block
        self._last = self._reserved = start.number
        self._at_start = True  # of a line
        self._is_after_crash = not start.is_in_order
        self._held = b""  # CR of what may be an empty line

    @property
    def last(self) -> int:
        """The last number used."""
        return self._last

    def reserve(self, data: bytes) -> Reserved | None:
        """What must be on disk before `number(data)`; None if enough is reserved. Raises FeedSettingsError when there
        are no numbers left."""
        most = self._last + data.count(b"\n") + 1
        if most <= self._reserved:
            return None
        if most > NUMBER_MAX:
            raise FeedSettingsError(f"numbers end at {NUMBER_MAX}: begin a new epoch")
        self._reserved = min(NUMBER_MAX, max(most, self._reserved + self._block))
        return Reserved(self._epoch, self._reserved, is_in_order=False)

    def number(self, data: bytes) -> bytes:
        """What to write for `data`, whose numbers are reserved."""
        return b"".join(self._numbered(self._held + data))

    def end(self) -> bytes:
        """What to write when the input has ended: the end of the last line."""
        missing = b"" if self._at_start else b"\n"
        self._at_start = True
        self._held = b""
        return missing

    def ended(self, *, is_in_order: bool) -> Reserved:
        """What goes to disk in the end, instead of the block: no gap follows. `is_in_order`: all was written."""
        return Reserved(self._epoch, self._last, is_in_order)

    def _numbered(self, data: bytes) -> Iterator[bytes]:
        self._held = b""
        for line in _lines(data):
            if self._at_start:
                if line in (b"\n", b"\r\n"):
                    continue
                if line == b"\r":
                    self._held = line
                    return
                if self._is_after_crash:  # the last line of the earlier run may have no end
                    yield b"\n"
                    self._is_after_crash = False
                self._last += 1
                yield f"{self._epoch}:{self._last}\t".encode()
            yield line
            self._at_start = line.endswith(b"\n")


def _lines(data: bytes) -> Iterator[bytes]:
    """Lines with their ends; only LF ends a line."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
