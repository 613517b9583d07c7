"""Sources that are text lines: cuts a stream of bytes into lines and takes off the sequencer's number.

`waystation feed sequence` writes `EPOCH:NUMBER<TAB>line`. Its numbers run over all lines, so all of them are one
stream, `name@epoch`, whatever they are about. Without a sequencer a format may name a part of the source
(`name/part@epoch`), and the epoch is an option.
Line ends are LF or CR LF. Empty lines are skipped.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from edge.feeds.errors import FrameError
from edge.feeds.source import Field, Found, Malformed, SourceMessage, checked_number, checked_stream, quoted, stream_id

LINE_BYTES_MAX: Final = 65_536
PREFIX: Final = re.compile(rb"(\d{1,20}):(\d{1,20})\t")
_PREFIX_BYTES_MAX: Final = 42


class Content(NamedTuple):
    """What a line says. `part`: of the source, for its stream id; `number`: the source's own."""

    at_us: int | None = None
    fields: Mapping[str, Field] = {}
    part: str | None = None
    number: int | None = None


LineFormat: TypeAlias = Callable[[bytes], Content | None]
"""Reads a line without its end; None: it is no message, such as a header. Raises FrameError."""


class LineParser:
    """Reads the lines of one source. `name`: of the source; `epoch`: of its numbers, unless `is_numbered`: then the
    lines come from a sequencer, which states it."""

    def __init__(
        self,
        line_format: LineFormat,
        name: str,
        *,
        epoch: int = 0,
        is_numbered: bool = False,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self._format = line_format
        self._name = checked_stream(name)
        self._epoch = checked_number(epoch)
        self._is_numbered = is_numbered
        self._most = line_bytes_max
        self._rest = bytearray()
        self._position = 0  # of the line that `_rest` begins
        self._is_skipping = False  # the rest of a line that is too long

    @property
    def position(self) -> int:
        """Where the next line begins, in bytes since the input began: what is before it has been reported."""
        return self._position

    def feed(self, data: bytes) -> list[Found]:
        """What the lines that end in `data` contain."""
        found: list[Found] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data[start:end], found)
            if not self._is_skipping:
                self._line(found)
            self._next_line(1)
            start = end + 1
        if start < len(data):
            self._take(data[start:], found)
        return found

    def end(self) -> list[Found]:
        """The input has ended. A last line without an end counts, unless a sequencer wrote it: that one is torn."""
        found: list[Found] = []
        if self._rest and not self._is_skipping:
            if self._is_numbered:
                stream, number = self._prefix_of_torn()
                found.append(Malformed(self._position, "the input ends within a line", stream, number))
            else:
                self._line(found)
        self._next_line(0)
        return found

    def cut(self) -> list[Found]:
        """The connection was lost: the rest is no line."""
        found: list[Found] = []
        if self._rest and not self._is_skipping:
            stream, number = self._prefix_of_torn()
            found.append(Malformed(self._position, "the connection ended within a line", stream, number))
        self._next_line(0)
        return found

    def _take(self, part: bytes, found: list[Found]) -> None:
        if self._is_skipping:
            self._position += len(part)
            return
        self._rest += part
        if len(self._rest) > self._most + 1:  # one more for CR
            stream, number = self._prefix_of_torn()
            reason = f"the line is longer than {self._most} bytes"
            found.append(Malformed(self._position, reason, stream, number))
            self._is_skipping = True
            self._position += len(self._rest)
            self._rest.clear()

    def _next_line(self, end_bytes: int) -> None:
        self._position += len(self._rest) + end_bytes
        self._rest.clear()
        self._is_skipping = False

    def _line(self, found: list[Found]) -> None:
        line = bytes(self._rest).removesuffix(b"\r")
        if not line:
            return
        if len(line) > self._most:
            stream, number = self._prefix_of_torn()
            found.append(Malformed(self._position, f"the line is longer than {self._most} bytes", stream, number))
            return
        stream, number = None, None
        try:
            if self._is_numbered:
                stream, number, line = self._unprefixed(line)
            content = self._format(line)
            if content is None:
                return
            if not self._is_numbered:
                stream, number = self._stream(content.part), content.number
            found.append(SourceMessage(stream or self._name, number, line, content.at_us, content.fields))
        except FrameError as error:
            if error.number is not None:
                stream, number = self._stream_if_possible(error.part), error.number
            found.append(Malformed(self._position, str(error), stream, number))

    def _stream(self, part: str | None) -> str:
        return stream_id(self._name, part, self._epoch)

    def _stream_if_possible(self, part: str | None) -> str | None:
        try:
            return self._stream(part)
        except FrameError:
            return None

    def _unprefixed(self, line: bytes) -> tuple[str, int, bytes]:
        prefix = PREFIX.match(line)
        if prefix is None:
            raise FrameError(f"the line does not begin with a sequencer's number: {quoted(line)}")
        stream = stream_id(self._name, None, checked_number(int(prefix[1])))
        return stream, checked_number(int(prefix[2])), line[prefix.end() :]

    def _prefix_of_torn(self) -> tuple[str | None, int | None]:
        """Stream and number of a line that cannot be read, if a sequencer wrote them and they are there."""
        if not self._is_numbered:
            return None, None
        try:
            stream, number, _ = self._unprefixed(bytes(self._rest[:_PREFIX_BYTES_MAX]))
        except FrameError:
            return None, None
        return stream, number
