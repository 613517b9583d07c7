"""miniSEED 2: records of seismic data with a six-digit sequence number, which starts over.

A record's stream is `name/network.station.location.channel@epoch`; its number counts on when the six digits start over
(:mod:`edge.feeds.unwrap`). The payload is the whole record. After malformed input the parser looks for the next place
where a record could begin.
"""

from collections.abc import Mapping
from typing import Final

from edge.feeds.errors import FrameError
from edge.feeds.formats.miniseed_header import (
    PLAUSIBLE,
    PLAUSIBLE_BYTES,
    RECORD_BYTES_MIN,
    Header,
    decode_header,
)
from edge.feeds.source import Field, Found, Malformed, SourceMessage, checked_number, checked_stream, stream_id
from edge.feeds.unwrap import StreamUnwrapper
from feeds.counter import MINISEED, STREAMS_MAX, Counter
from feeds.errors import FeedSettingsError

RECORD_BYTES_MAX: Final = 65_536


class MiniSeedParser:
    """Reads the records of one source.

    `epoch`: of its numbers. `counter`: what the six digits count from and to. `near`: by stream the highest number of
    the pair, for an adapter that starts later. `record_bytes`: the length of records without blockette 1000; None:
    these are malformed.
    """

    def __init__(
        self,
        name: str,
        *,
        epoch: int = 0,
        counter: Counter = MINISEED,
        near: Mapping[str, int] | None = None,
        record_bytes: int | None = None,
        record_bytes_max: int = RECORD_BYTES_MAX,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        if record_bytes is not None and not RECORD_BYTES_MIN <= record_bytes <= record_bytes_max:
            raise FeedSettingsError(f"record_bytes is {RECORD_BYTES_MIN} to {record_bytes_max}, not {record_bytes}")
        self._name = checked_stream(name)
        self._epoch = checked_number(epoch)
        self._unwrapper = StreamUnwrapper(counter, near, streams_max)
        self._record_bytes = record_bytes
        self._most = record_bytes_max
        self._rest = bytearray()
        self._position = 0  # of the first byte of `_rest`
        self._needed = 0  # bytes that `_rest` must have for a look at it to be worthwhile
        self._is_lost = False  # malformed input was reported, and no record has begun since

    @property
    def position(self) -> int:
        """Where the next record begins, in bytes since the input began: what is before it has been reported."""
        return self._position

    def feed(self, data: bytes) -> list[Found]:
        """The records that end in `data`."""
        self._rest += data
        found: list[Found] = []
        start = 0
        while len(self._rest) - start >= max(self._needed, 1):
            size = self._next(start, found)
            if not size:
                break
            start += size
        del self._rest[:start]
        self._position += start
        return found

    def end(self) -> list[Found]:
        """The input has ended: an incomplete record is malformed."""
        found: list[Found] = []
        if self._rest and not self._is_lost:
            found.append(Malformed(self._position, f"the input ends within a record, after {len(self._rest)} bytes"))
        self._position += len(self._rest)
        self._rest.clear()
        self._needed = 0
        self._is_lost = False
        return found

    def cut(self) -> list[Found]:
        """The connection was lost: as :meth:`end`."""
        return self.end()

    def highest(self) -> dict[str, int]:
        """The highest number of each stream."""
        return self._unwrapper.highest()

    def _next(self, start: int, found: list[Found]) -> int:
        """Reads the record at `start`, or passes over what is none; how many bytes, 0 to wait for more."""
        self._needed = 0
        try:
            header = decode_header(self._rest, start, self._most)
            if header is None:
                self._needed = len(self._rest) - start + 1
                return 0
            size = header.record_bytes or self._record_bytes
            if size is None:
                raise FrameError("the record does not state its length (blockette 1000), and record_bytes is not set")
        except FrameError as error:
            if not self._is_lost:
                found.append(Malformed(self._position + start, str(error)))
            self._is_lost = True
            return self._passed_over(start)
        if len(self._rest) - start < size:
            self._needed = size
            return 0
        self._is_lost = False
        found.append(self._record(header, start, bytes(self._rest[start : start + size])))
        return size

    def _record(self, header: Header, start: int, record: bytes) -> Found:
        stream: str | None = None
        try:
            stream = stream_id(self._name, header.source, self._epoch)
            number = self._unwrapper.unwrap(stream, header.sequence)
        except FrameError as error:
            return Malformed(self._position + start, str(error), stream)
        fields: dict[str, Field] = {"quality": header.quality, "samples": header.samples}
        if header.timing_quality is not None:
            fields["timing_quality"] = header.timing_quality
        return SourceMessage(stream, number, record, header.at_us, fields)

    def _passed_over(self, start: int) -> int:
        """How many bytes there are to where the next record may begin."""
        found = PLAUSIBLE.search(self._rest, start + 1)
        if found is not None:
            return found.start() - start
        left = len(self._rest) - start
        return max(1, left - PLAUSIBLE_BYTES + 1)
