"""Mode S, NMEA 0183, NMEA 2000: what is read, and why a line is malformed (S2)."""

import pytest

from edge.feeds.errors import FrameError
from edge.feeds.formats.lines import Content, LineFormat, LineParser
from edge.feeds.formats.mode_s import frame_of, mode_s, remainder
from edge.feeds.formats.nmea0183 import nmea0183
from edge.feeds.formats.nmea2000 import nmea2000
from edge.feeds.source import SourceMessage
from tests.draw import generator, times
from tests.unit.edge.feeds.source_data import mode_s_line, n2k_line, nmea_line, tagged

AIRBORNE = b'{"timestamp":1720248189.525094,"frame":"8d4840d6202cc371c32ce0576098"}'
"""The example of the 1090 MHz riddle: an aircraft's identification."""
nmea = nmea0183()


def content(line_format: LineFormat, line: bytes) -> Content:
    found = line_format(line)
    assert found is not None
    return found


def test_a_squitter_is_checked_by_itself() -> None:
    found = content(mode_s, AIRBORNE)
    assert found.fields == {"df": 17, "icao24": "4840d6", "is_checked": 1}
    assert found.at_us == 1_720_248_189_525_094
    assert found.number is None


def test_an_aircraft_is_a_stream_unless_lines_are_numbered() -> None:
    unnumbered = LineParser(mode_s, "radar").feed(AIRBORNE + b"\n")
    assert unnumbered == [
        SourceMessage("radar/4840d6@0", None, AIRBORNE, 1_720_248_189_525_094, content(mode_s, AIRBORNE).fields)
    ]
    (numbered,) = LineParser(mode_s, "radar", is_numbered=True).feed(b"20261127:7\t" + AIRBORNE + b"\n")
    assert (numbered.stream, numbered.number) == ("radar@20261127", 7)
    assert isinstance(numbered, SourceMessage)
    assert numbered.payload == AIRBORNE


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    """With the address in the line, for all formats; the noise after a short frame does not count."""
    for df in (0, 4, 5, 11, 16, 17, 18, 20, 21, 24):
        line = mode_s_line(df)
        assert content(mode_s, line).fields["icao24"] == "393322"
        at = line.index(b'"frame":"') + 9
        for bit in range(5, 4 * (14 if df < 16 else 28)):
            if df == 11 and bit >= 49:
                continue  # the interrogator's code
            digit = at + bit // 4
            value = int(line[digit : digit + 1], 16) ^ (8 >> bit % 4)
            with pytest.raises(FrameError, match=r"parity|damaged"):
                mode_s(b"%b%x%b" % (line[:digit], value, line[digit + 1 :]))


def test_without_an_address_in_the_line_the_parity_is_the_address() -> None:
    line = mode_s_line(df=4, icao=0xABCDEF).replace(b'"icao24":"abcdef"', b'"icao24":null')
    assert content(mode_s, line).fields == {"df": 4, "icao24": "abcdef", "is_checked": 0}


def test_remainder_is_that_of_bitwise_division() -> None:
    draws = generator("CRC-24")
    for _ in range(times(200, 5_000)):
        frame = draws.randbytes(draws.choice((7, 14)))
        register = int.from_bytes(frame, "big")
        for bit in reversed(range(24, 8 * len(frame))):
            if register >> bit & 1:
                register ^= 0x1FFF409 << bit - 24
        assert remainder(frame) == register


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "no JSON object"),
        (b"[" * 60_000, "no JSON object"),
        (b'{"timestamp":1,"frame":"\xff"}', "no JSON object"),
        (b'{"timestamp":"1","frame":""}', "no JSON object"),
        (b'{"timestamp":1,"frame":"8d4840d6202cc371c32ce057609"}', "14 or 28"),
        (b'{"timestamp":1,"frame":"8d4840d6202cc371c32ce057609g"}', "14 or 28"),
        (b'{"timestamp":1,"frame":"8d4840d6202cc3"}', "112 bits"),
        (b'{"timestamp":1e300,"frame":"8d4840d6202cc371c32ce0576098"}', "no time"),
        (b'{"timestamp":-1,"frame":"8d4840d6202cc371c32ce0576098"}', "no time"),
        (b'{"timestamp":1,"frame":"8d4840d6202cc371c32ce0576099"}', "wrong by 000001"),
        (b'{"timestamp":1,"frame":"8d4840d6202cc371c32ce0576098","icao24":"000000"}', "damaged"),
    ],
)
def test_malformed_mode_s(line: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        mode_s(line)


def test_a_short_frame_has_no_noise() -> None:
    assert frame_of("212800bf40f1ef7e5817e9cc428d") == bytes.fromhex("212800bf40f1ef") == frame_of("212800bf40f1ef")


def test_nmea_sentences() -> None:
    assert content(nmea, nmea_line("GPGLL,5300.97914,N,00259.98174,E,125926,A")).fields == {
        "talker": "GP",
        "sentence": "GLL",
    }
    assert content(nmea, nmea_line("PSRF150,1")).fields == {"talker": "P", "sentence": "SRF150"}
    assert content(nmea, b"$GPGLL,5300.97914,N,00259.98174,E,125926,A*28").number is None


def test_ais_in_two_sentences_stays_two_and_tag_blocks_are_read() -> None:
    first = nmea_line("AIVDM,2,1,3,B,55P5TL01VIaAL@7W,0", "!")
    found = content(nmea, tagged("s:r003669945,c:1120959341,g:1-2-1234,n:7", first))
    assert found.at_us == 1_120_959_341_000_000
    assert found.fields == {
        "talker": "AI",
        "sentence": "VDM",
        "of": 2,
        "part": 1,
        "group": "3",
        "channel": "B",
        "source": "r003669945",
        "tag_group": "1-2-1234",
    }
    assert content(nmea, tagged("c:1120959341123", tagged("s:a", first))).at_us == 1_120_959_341_123_000


def test_a_checksum_may_be_left_out_if_the_options_say_so() -> None:
    with pytest.raises(FrameError, match="has no checksum"):
        nmea(b"$GPTXT,hello")
    assert content(nmea0183(needs_checksum=False), b"$GPTXT,hello").fields["sentence"] == "TXT"
    with pytest.raises(FrameError, match="checksum of the sentence is"):
        nmea0183(needs_checksum=False)(b"$GPTXT,hello*00")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"GPGLL,1*00", "no sentence"),
        (b"$gpgll*00", "no sentence"),
        (b"$GPGLL,1*0", "no sentence"),
        (b"$GPGLL,1*0000", "no sentence"),
        (b"$GP\xb0LL,1*00", "0xb0 at 3"),
        (b"$GPGLL,1*00", "is 4D, not 00"),
        (b"\\s:a*00\\$GPGLL,1*4D", "checksum of a TAG block"),
        (b"\\s:a$GPGLL,1*4D", "not complete"),
        (tagged("s", nmea_line("GPGLL")), "no value"),
        (tagged("c:12", nmea_line("GPGLL")), "neither seconds nor milliseconds"),
        (nmea_line("GPG"), "too short"),
        (nmea_line("AIVDM,2,3,,B,x,0", "!"), "part 3 of 2"),
        (nmea_line("AIVDM,x", "!"), "which part"),
    ],
)
def test_malformed_nmea0183(line: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        nmea(line)


def test_a_frame_of_nmea_2000() -> None:
    found = content(nmea2000, n2k_line(129029, bytes(range(43)), 160))
    assert found == Content(1_408_129_200_048_000, {"priority": 2, "pgn": 129029, "source": 160, "destination": 255})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"2014-08-15T19:00:00.048Z,2,128259,115,255,8", "no frame"),
        (n2k_line().replace(b"Z,2,", b"Z,8,"), "no frame"),
        (n2k_line().replace(b"08-15", b"02-30"), "is no time"),
        (n2k_line(0x41000), "PGN 266240 is more"),
        (n2k_line(source=256), "source 256"),
        (n2k_line().replace(b",255,8,", b",999,8,"), "destination 999"),
        (n2k_line().replace(b",8,", b",7,"), "has 8 bytes of data, its length is 7"),
        (n2k_line(data=bytes(1_786)), "the limit 1785"),
        (n2k_line() + b",0", "two hexadecimal digits"),
        (n2k_line().replace(b"4e", b"+e"), "two hexadecimal digits"),
        (n2k_line(data=b""), "two hexadecimal digits"),
    ],
)
def test_malformed_nmea2000(line: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        nmea2000(line)
