"""Mode S frames in JSON lines: `{"timestamp": seconds, "frame": "8f39…", "icao24": "393322", …}`.

ICAO Annex 10, volume IV: a frame's first five bits are its downlink format DF (3.1.2.3.2.1); one of DF 0 to 15 has 56
bits, all others have 112. Its last 24 bits are parity over the others, generator 0xFFF409 (3.1.2.3.3). In DF 17 and 18,
and in some of DF 19, the parity is plain. In DF 11 the interrogator's code, below 128, is added. In the others the
aircraft's address is added: it is what the check leaves over, and such a frame can only be checked against an address
that the line names.

Receivers write 112 bits even for a short frame; what follows its 56 bits is noise and does not count.
Mode S has no sequence numbers.
"""

import string
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from edge.feeds.errors import FrameError
from edge.feeds.formats.lines import Content
from edge.feeds.source import TIME_US_MAX, quoted

SHORT_BYTES: Final = 7
LONG_BYTES: Final = 14
_FIRST_LONG: Final = 16
_FIRST_ELM: Final = 24  # DF 24 has two bits for its format: 24 to 31 are the same
_ALL_CALL: Final = 11
_SQUITTERS: Final = (17, 18)
_MILITARY: Final = 19
_CODES: Final = 128
_GENERATOR: Final = 0xFFF409
_HEX: Final = frozenset(string.hexdigits)


class _Line(Struct):
    timestamp: float
    frame: str
    icao24: str | None = None


_DECODER: Final = Decoder(_Line)


def mode_s(line: bytes) -> Content:
    """Fields: `df`, `icao24` (six hexadecimal digits), `is_checked`: 1 if the parity was compared with something. The
    part of the source is the aircraft. Raises FrameError."""
    try:
        found = _DECODER.decode(line)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"no JSON object with `timestamp` and `frame`: {error}") from error
    frame = frame_of(found.frame)
    named = None if found.icao24 is None else found.icao24.lower()
    df, address, is_checked = _checked(frame, named)
    return Content(_at_us(found.timestamp), {"df": df, "icao24": address, "is_checked": int(is_checked)}, address)


def frame_of(text: str) -> bytes:
    """A frame from its digits, without noise after a short one. Raises FrameError."""
    if len(text) not in (2 * SHORT_BYTES, 2 * LONG_BYTES) or not _HEX.issuperset(text):
        raise FrameError(f"a frame is 14 or 28 hexadecimal digits, unlike {quoted(text)}")
    raw = bytes.fromhex(text)
    if raw[0] >> 3 < _FIRST_LONG:
        return raw[:SHORT_BYTES]
    if len(raw) < LONG_BYTES:
        raise FrameError(f"a frame of DF {raw[0] >> 3} has 112 bits, here are 56")
    return raw


def remainder(frame: bytes) -> int:
    """What parity leaves over: 0, the interrogator's code, or the aircraft's address."""
    register = 0
    for byte in frame[:-3]:
        register = (register << 8 & 0xFFFFFF) ^ _TABLE[register >> 16 ^ byte]
    return register ^ int.from_bytes(frame[-3:], "big")


def _checked(frame: bytes, named: str | None) -> tuple[int, str, bool]:
    df, left = min(frame[0] >> 3, _FIRST_ELM), remainder(frame)
    if df in (*_SQUITTERS, _ALL_CALL) or (df == _MILITARY and not left):
        if left >= (_CODES if df == _ALL_CALL else 1):
            raise FrameError(f"the parity of a frame of DF {df} is wrong by {left:06x}")
        address, is_checked = frame[1:4].hex(), True
    else:
        address, is_checked = f"{left:06x}", named is not None
    if named not in (None, address):
        raise FrameError(f"the frame of DF {df} is of {address}, or damaged: the line says {quoted(named or '')}")
    return df, address, is_checked


def _at_us(seconds: float) -> int:
    if not 0 <= seconds <= TIME_US_MAX / 2_000_000:
        raise FrameError(f"timestamp {seconds} is no time in seconds")
    return round(seconds * 1_000_000)


def _entry(byte: int) -> int:
    register = byte << 16
    for _ in range(8):
        register = (register << 1) ^ (_GENERATOR if register & 0x800000 else 0)
    return register & 0xFFFFFF


_TABLE: Final = tuple(map(_entry, range(256)))
