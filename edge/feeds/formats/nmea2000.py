"""NMEA 2000 frames as text lines: `2014-08-15T19:00:00.048Z,2,128259,115,255,8,00,4e,01,ff,ff,00,ff,ff`.

This is the "plain" form of canboat, which signalk-server records: time (UTC), priority, PGN, source, destination (255:
all), number of data bytes, data. Widths are those of the 29-bit CAN identifier (NMEA 2000 appendix D; ISO 11783-3,
5.2): priority 3 bits, PGN 18 bits, addresses 8 bits. PGNs from 0x40000 on are not of the bus: canboat numbers a
gateway's own messages so. Data have at most 1,785 bytes, the limit of the transport protocol (ISO 11783-3, 5.10). A
message in several frames (fast packet) stays as the source wrote it, joined or in frames. NMEA 2000 has no sequence
numbers: that of a fast packet has three bits, and only groups frames.
"""

import re
from datetime import UTC, datetime
from typing import Final

from edge.feeds.errors import FrameError
from edge.feeds.formats.lines import Content
from edge.feeds.source import micros, quoted

DATA_BYTES_MAX: Final = 1_785
_PGN_MAX: Final = 0x40FFF
"""18 bits, and what canboat numbers beyond them."""
_BYTE_MAX: Final = 255
_HEAD: Final = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}|\.\d{6})?)Z,([0-7]),(\d{1,6}),(\d{1,3}),(\d{1,3}),(\d{1,4}),"
)
_DATA: Final = re.compile(rb"[0-9A-Fa-f]{2}(?:,[0-9A-Fa-f]{2})*")


def nmea2000(line: bytes) -> Content:
    """Fields: `priority`, `pgn`, `source`, `destination`. Raises FrameError."""
    head = _HEAD.match(line)
    if head is None:
        raise FrameError(f"no frame of NMEA 2000 in text form: {quoted(line)}")
    pgn, source, destination, size = map(int, head.groups()[2:])
    for value, most, what in (
        (pgn, _PGN_MAX, "PGN"),
        (source, _BYTE_MAX, "source"),
        (destination, _BYTE_MAX, "destination"),
    ):
        if value > most:
            raise FrameError(f"{what} {value} is more than {most}")
    data = _DATA.fullmatch(line, head.end())
    if data is None:
        raise FrameError(f"the data are not bytes of two hexadecimal digits each: {quoted(line[head.end() :])}")
    count = (len(data[0]) + 1) // 3
    if not count == size <= DATA_BYTES_MAX:
        raise FrameError(f"the frame has {count} bytes of data, its length is {size}, the limit {DATA_BYTES_MAX}")
    try:
        at = datetime.fromisoformat(head[1].decode()).replace(tzinfo=UTC)
    except ValueError as error:
        raise FrameError(f"{head[1].decode()}Z is no time: {error}") from error
    return Content(micros(at), {"priority": int(head[2]), "pgn": pgn, "source": source, "destination": destination})
