"""The header of a miniSEED 2 record: fixed section of data header, and blockettes 1000 and 1001.

SEED Reference Manual 2.4, chapter 8: the fixed section has 48 bytes; each blockette begins with its type and the offset
of the next one, in the record. Blockette 1000 has the record's length as a power of two, 1001 the quality of its time
and the microseconds that the fixed section has no place for. Byte order is not stated before blockette 1000: it is the
one in which year and day are sensible, as readers commonly decide.
"""

import re
from datetime import UTC, datetime, timedelta
from struct import Struct as Layout
from struct import unpack_from
from typing import Final, NamedTuple

from edge.feeds.errors import FrameError
from edge.feeds.source import micros, quoted

FIXED_BYTES: Final = 48
RECORD_BYTES_MIN: Final = 128
PLAUSIBLE: Final = re.compile(rb"\d{6}[DRQM][ \0][ A-Z0-9]{12}")
"""How a record begins: number, quality, reserved byte, station, location, channel, network."""
PLAUSIBLE_BYTES: Final = 20

_LAYOUTS: Final = {order: Layout(f"{order}6ss x 5s2s3s2s HHBBBxH HhhBBBBiHH".replace(" ", "")) for order in "><"}
_YEARS: Final = range(1900, 2101)
_DAYS: Final = range(1, 367)
_CORRECTION_APPLIED: Final = 0x02
_TICK_US: Final = 100
_BLOCKETTE_HEAD: Final = 4
_EXPONENTS: Final = range(7, 32)
_BLOCKETTE_BYTES: Final = {1000: 8, 1001: 8}


class Header(NamedTuple):
    """`sequence`: the six digits as a number. `source`: network.station.location.channel. `at_us`: of the first sample.
    `record_bytes`: from blockette 1000, None without one. `timing_quality`: percent, from blockette 1001."""

    sequence: int
    quality: str
    source: str
    at_us: int
    samples: int
    record_bytes: int | None
    timing_quality: int | None


def decode_header(data: bytes | bytearray, start: int, most: int) -> Header | None:
    """The header of the record at `start`; None if more bytes are needed to read it. `most`: bytes of a record at most.
    Raises FrameError."""
    if len(data) - start < FIXED_BYTES:
        return None
    if PLAUSIBLE.match(data, start) is None:
        raise FrameError(f"no miniSEED record begins here: {quoted(bytes(data[start : start + PLAUSIBLE_BYTES]))}")
    order = _byte_order(data, start)
    fields = _LAYOUTS[order].unpack_from(data, start)
    digits, quality, *codes = (field.decode() for field in fields[:6])
    at = _start(fields[6:12])
    samples, flags, count, correction, _, first = fields[12], fields[15], fields[18], fields[19], fields[20], fields[21]
    found = _blockettes(data, start, order, count, first, most)
    if found is None:
        return None
    exponent, timing, extra_us = found
    if exponent is not None and not RECORD_BYTES_MIN <= 1 << exponent <= most:
        raise FrameError(f"the record has {1 << exponent} bytes, allowed are {RECORD_BYTES_MIN} to {most}")
    station, location, channel, network = (code.rstrip() for code in codes)
    at_us = micros(at) + (0 if flags & _CORRECTION_APPLIED else correction * _TICK_US) + extra_us
    source = f"{network}.{station}.{location}.{channel}"
    return Header(int(digits), quality, source, at_us, samples, None if exponent is None else 1 << exponent, timing)


def _byte_order(data: bytes | bytearray, start: int) -> str:
    for order in "><":
        year, day = unpack_from(f"{order}HH", data, start + 20)
        if year in _YEARS and day in _DAYS:
            return order
    raise FrameError("the record's year and day are not sensible in either byte order")


def _start(fields: tuple[int, ...]) -> datetime:
    year, day, hour, minute, second, ticks = fields
    if hour > 23 or minute > 59 or second > 60 or ticks > 9_999:  # second 60 is a leap second
        raise FrameError(f"the record's time {hour:02}:{minute:02}:{second:02}.{ticks:04} is none")
    since = timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=ticks * _TICK_US)
    return datetime(year, 1, 1, tzinfo=UTC) + since


def _blockettes(
    data: bytes | bytearray, start: int, order: str, count: int, first: int, most: int
) -> tuple[int | None, int | None, int] | None:
    """Exponent of the length, timing quality, microseconds; None if more bytes are needed."""
    exponent: int | None = None
    timing: int | None = None
    extra_us = 0
    least, offset = FIXED_BYTES, first
    for index in range(count):
        if not least <= offset <= most - _BLOCKETTE_HEAD:
            raise FrameError(f"blockette {index + 1} of {count} is at {offset}, outside {least} to {most}")
        at = start + offset
        if len(data) < at + _BLOCKETTE_HEAD:
            return None
        kind, following = unpack_from(f"{order}HH", data, at)
        if len(data) < at + _BLOCKETTE_BYTES.get(kind, _BLOCKETTE_HEAD):
            return None
        if kind == 1000:
            exponent = data[at + 6]
            if exponent not in _EXPONENTS:
                raise FrameError(f"the record's length is 2^{exponent} bytes in blockette 1000")
        elif kind == 1001:
            timing, extra_us = unpack_from("Bb", data, at + 4)
        least, offset = offset + _BLOCKETTE_BYTES.get(kind, _BLOCKETTE_HEAD), following
    return exponent, timing, extra_us
