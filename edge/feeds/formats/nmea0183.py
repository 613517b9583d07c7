r"""NMEA 0183 sentences, also of AIS, one a line: `$GPGLL,…*1D`, `!AIVDM,2,1,3,B,…*5E`, `\s:station,c:1700000000*hh\$…`.

NMEA 0183 version 4.10: a sentence begins with `$`, or with `!` if it is encapsulated (section 5.3); its checksum is the
exclusive or of the characters between this one and `*`. TAG blocks (section 7) before it have a checksum of their own.
Each sentence of an AIS message in several is a message here: `of` and `sentence` say which. Standard length is 82
characters; longer ones are common and allowed, up to the parser's limit of a line. NMEA 0183 has no sequence numbers:
the one in AIS (0 to 9) only groups sentences.
"""

import re
from functools import reduce
from operator import xor
from typing import Final

from edge.feeds.errors import FrameError
from edge.feeds.formats.lines import Content, LineFormat
from edge.feeds.source import Field, quoted

_SENTENCE: Final = re.compile(rb"[$!]([A-Z][A-Z0-9]{2,14}),?([^*]*)(?:\*([0-9A-Fa-f]{2}))?")
_TAG_BLOCK: Final = re.compile(rb"\\([^\\*]*)\*([0-9A-Fa-f]{2})\\")
_PROPRIETARY: Final = "P"
_QUERY_LENGTH: Final = 5
_SECONDS_DIGITS: Final = 10
_MILLISECONDS_DIGITS: Final = 13
_NOT_PRINTABLE: Final = re.compile(rb"[^ -~]")


def nmea0183(*, needs_checksum: bool = True) -> LineFormat:
    """The format. `needs_checksum`: a sentence without a checksum is malformed.

    Fields: `talker`, `sentence`; of AIS `of`, `part`, `group`, `channel`; of TAG blocks `source`, `tag_group`.
    """

    def sentence(line: bytes) -> Content:
        return _content(line, needs_checksum)

    return sentence


def checksum(text: bytes) -> int:
    """The exclusive or of all bytes."""
    return reduce(xor, text, 0)


def _content(line: bytes, needs_checksum: bool) -> Content:
    odd = _NOT_PRINTABLE.search(line)
    if odd is not None:
        raise FrameError(f"byte {line[odd.start()]:#04x} at {odd.start()} of the line is not printable ASCII")
    at_us: int | None = None
    fields: dict[str, Field] = {}
    start = 0
    while line.startswith(b"\\", start):
        block = _TAG_BLOCK.match(line, start)
        if block is None:
            raise FrameError(f"a TAG block is not complete: {quoted(line[start:])}")
        _compare(block[1], block[2], "a TAG block")
        at_us = _read_tags(block[1].decode(), fields) or at_us
        start = block.end()
    found = _SENTENCE.fullmatch(line, start)
    if found is None:
        raise FrameError(f"no sentence of NMEA 0183: {quoted(line[start:])}")
    if found[3] is not None:
        _compare(line[start + 1 : found.start(3) - 1], found[3], "the sentence")
    elif needs_checksum:
        raise FrameError("the sentence has no checksum")
    fields |= _address(found[1].decode())
    if line[start] == ord("!"):
        fields |= _encapsulated(found[2].decode().split(","))
    return Content(at_us, fields)


def _compare(text: bytes, digits: bytes, what: str) -> None:
    computed = checksum(text)
    if computed != int(digits, 16):
        raise FrameError(f"the checksum of {what} is {computed:02X}, not {digits.decode().upper()}")


def _address(address: str) -> dict[str, Field]:
    if address.startswith(_PROPRIETARY):
        return {"talker": _PROPRIETARY, "sentence": address[1:]}
    if len(address) < _QUERY_LENGTH:
        raise FrameError(f"{quoted(address)} is too short for a talker and a sentence")
    return {"talker": address[:2], "sentence": address[2:]}


def _encapsulated(values: list[str]) -> dict[str, Field]:
    """The place of a sentence in an AIS message: `2,1,3,B`."""
    if len(values) < 4 or not (values[0].isdigit() and values[1].isdigit()):
        raise FrameError("an encapsulated sentence does not say which part of how many it is")
    of, part = int(values[0]), int(values[1])
    if not 1 <= part <= of <= 9:
        raise FrameError(f"an encapsulated sentence is part {part} of {of}")
    return {"of": of, "part": part, "group": values[2], "channel": values[3]}


def _read_tags(text: str, fields: dict[str, Field]) -> int | None:
    """Adds what is known to the fields; the time in microseconds, if there is one."""
    at_us = None
    for tag in text.split(","):
        code, colon, value = tag.partition(":")
        if not colon:
            raise FrameError(f"a parameter of a TAG block has no value: {quoted(tag)}")
        if code == "s":
            fields["source"] = value
        elif code == "g":
            fields["tag_group"] = value
        elif code == "c":
            at_us = _time(value)
    return at_us


def _time(value: str) -> int:
    if not value.isdigit() or len(value) not in (_SECONDS_DIGITS, _MILLISECONDS_DIGITS):
        raise FrameError(f"the time of a TAG block is neither seconds nor milliseconds: {quoted(value)}")
    return int(value) * (1_000_000 if len(value) == _SECONDS_DIGITS else 1_000)
