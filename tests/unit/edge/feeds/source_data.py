"""Builders of source data, in each format: what tests feed to the parsers."""

from collections.abc import Callable
from dataclasses import dataclass
from struct import pack
from typing import Protocol

from edge.feeds.formats.csv_lines import CsvDialect, csv_lines
from edge.feeds.formats.json_lines import json_lines
from edge.feeds.formats.lines import LineParser
from edge.feeds.formats.miniseed import MiniSeedParser
from edge.feeds.formats.mode_s import mode_s, remainder
from edge.feeds.formats.nmea0183 import checksum, nmea0183
from edge.feeds.formats.nmea2000 import nmea2000
from edge.feeds.source import Found
from feeds.line_mapping import LineMapping

MAPPING = LineMapping(stream="sensor", number="seq", time="at", time_unit="ms")


class Parser(Protocol):
    """A parser of a byte stream."""

    def feed(self, data: bytes) -> list[Found]: ...
    def end(self) -> list[Found]: ...


def mode_s_line(df: int = 17, icao: int = 0x393322, body: int = 5, at_s: float = 1720248189.5) -> bytes:
    """A frame with the right parity; `body` is its content."""
    size = 7 if df < 16 else 14
    plain = df in (11, 17, 18)
    head = bytes([df << 3]) + (icao.to_bytes(3, "big") if plain else b"\1\2\3")
    frame = (head + body.to_bytes(7, "big"))[: size - 3].ljust(size - 3, b"\0")
    parity = remainder(frame + bytes(3)) ^ (0 if plain else icao)
    noise = b"\xee" * (14 - size)
    digits = (frame + parity.to_bytes(3, "big") + noise).hex()
    return f'{{"timestamp":{at_s},"frame":"{digits}","df":"{df}","icao24":"{icao:06x}"}}'.encode()


def nmea_line(text: str, start: str = "$") -> bytes:
    """A sentence with its checksum."""
    return f"{start}{text}*{checksum(text.encode()):02X}".encode()


def tagged(tags: str, sentence: bytes) -> bytes:
    """A sentence with a TAG block before it."""
    return f"\\{tags}*{checksum(tags.encode()):02X}\\".encode() + sentence


def n2k_line(pgn: int = 128259, data: bytes = b"\0\x4e\1\xff\xff\0\xff\xff", source: int = 115) -> bytes:
    """A frame in text form."""
    return f"2014-08-15T19:00:00.048Z,2,{pgn},{source},255,{len(data)},{data.hex(',')}".encode()


def record(
    sequence: int = 763445,
    *,
    order: str = ">",
    size: int = 256,
    blockettes: tuple[int, ...] = (1000, 1001),
    flags: int = 0,
    correction: int = -1500,
    extra_us: int = 35,
    filling: bytes = b"\x55",
) -> bytes:
    """A miniSEED 2 record of network EH, station BGLD, channel EBW."""
    head = f"{sequence:06}D BGLD 00EBWEH".encode()
    time = pack(f"{order}HHBBBxH", 2008, 1, 0, 0, 0, 650)
    rest = pack(f"{order}HhhBBBBiHH", 412, 200, 1, flags, 0, 0, len(blockettes), correction, 128, 48)
    made = head + time + rest
    for index, kind in enumerate(blockettes):
        following = 0 if index + 1 == len(blockettes) else len(made) + 8
        content = pack("BBBx", 10, 1, size.bit_length() - 1) if kind == 1000 else pack("BbBx", 55, extra_us, 7)
        made += pack(f"{order}HH", kind, following) + content
    return made.ljust(size, filling)


@dataclass(frozen=True)
class Case:
    """A format: a new parser, and valid input as frames with their ends."""

    name: str
    parser: Callable[[], Parser]
    frames: tuple[bytes, ...]


def lines(*texts: bytes) -> tuple[bytes, ...]:
    """Lines with their ends."""
    return tuple(text + b"\r\n" for text in texts)


def numbered(*texts: bytes) -> tuple[bytes, ...]:
    """Lines as a sequencer writes them."""
    return tuple(b"51:%d\t%b\n" % (number, text) for number, text in enumerate(texts, start=1))


CASES = (
    Case(
        "mode-s",
        lambda: LineParser(mode_s, "radar"),
        lines(mode_s_line(), mode_s_line(df=4, body=8), mode_s_line(df=11), mode_s_line(df=20, icao=0x4CA123)),
    ),
    Case(
        "numbered",
        lambda: LineParser(mode_s, "radar", is_numbered=True),
        numbered(mode_s_line(), mode_s_line(df=21), mode_s_line(), mode_s_line()),
    ),
    Case(
        "nmea0183",
        lambda: LineParser(nmea0183(), "bridge"),
        lines(
            nmea_line("GPGLL,5300.97914,N,00259.98174,E,125926,A"),
            nmea_line("AIVDM,2,1,3,B,55P5TL01VIaAL@7W,0", "!"),
            tagged("s:r003669945,c:1120959341,g:1-2-1234", nmea_line("AIVDM,2,2,3,B,1@0000000000000,2", "!")),
            nmea_line("PSRF150,1"),
        ),
    ),
    Case(
        "nmea2000",
        lambda: LineParser(nmea2000, "boat"),
        lines(n2k_line(), n2k_line(129029, bytes(range(43))), n2k_line(65306, b"\x3b\x9f")),
    ),
    Case(
        "csv",
        lambda: LineParser(csv_lines(MAPPING, CsvDialect(columns=("seq", "sensor", "at", "value"))), "plant"),
        lines(b"1,a,1700000000000,2.5", b'2,a,1700000000001,"2,5"', b"1,b,1700000000002,x"),
    ),
    Case(
        "json",
        lambda: LineParser(json_lines(MAPPING), "plant"),
        lines(*(b'{"seq":%d,"sensor":"a","at":1700000000000,"v":[1]}' % number for number in (1, 2, 4))),
    ),
    Case(
        "miniseed",
        lambda: MiniSeedParser("quakes"),
        (record(999_999), record(1, order="<"), record(3, blockettes=(1001, 1000), size=512), record(2)),
    ),
)
BY_NAME = {case.name: case for case in CASES}
