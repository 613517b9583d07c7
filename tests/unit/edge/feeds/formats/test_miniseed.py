"""miniSEED 2: header, number, time, and what is malformed (S2)."""

import re
from struct import pack

import pytest

from edge.feeds.formats.miniseed import MiniSeedParser
from edge.feeds.source import Found, Malformed, SourceMessage
from feeds.counter import Counter
from feeds.errors import FeedSettingsError
from tests.unit.edge.feeds.source_data import record

START_US = 1_199_145_600_000_000  # 2008-01-01


def read(data: bytes, **options: object) -> list[Found]:
    parser = MiniSeedParser("quakes", **options)  # type: ignore[arg-type]
    return parser.feed(data) + parser.end()


@pytest.mark.parametrize("order", [">", "<"])
def test_a_record_in_either_byte_order(order: str) -> None:
    (found,) = read(record(order=order))
    assert found == SourceMessage(
        "quakes/EH.BGLD.00.EBW@0",
        763_445,
        record(order=order),
        START_US + 65_000 - 150_000 + 35,
        {"quality": "D", "samples": 412, "timing_quality": 55},
    )


def test_a_correction_that_was_applied_is_not_applied_again() -> None:
    (found,) = read(record(flags=2, blockettes=(1000,)))
    assert isinstance(found, SourceMessage)
    assert (found.at_us, "timing_quality" in found.fields) == (START_US + 65_000, False)


def test_numbers_start_over_in_each_stream_by_itself() -> None:
    other = record(7).replace(b"EBW", b"EBN")
    found = read(record(999_999) + other + record(1) + record(999_998))
    assert [(one.stream, one.number) for one in found] == [
        ("quakes/EH.BGLD.00.EBW@0", 999_999),
        ("quakes/EH.BGLD.00.EBN@0", 7),
        ("quakes/EH.BGLD.00.EBW@0", 1_000_000),
        ("quakes/EH.BGLD.00.EBW@0", 999_998),
    ]
    (late,) = read(record(3), near={"quakes/EH.BGLD.00.EBW@0": 1_999_990})
    assert late.number == 2_000_001


def test_a_source_that_counts_from_0() -> None:
    (refused,) = read(record(0))
    assert isinstance(refused, Malformed)
    assert "1 to 999999" in refused.reason
    found = read(record(999_999) + record(0), counter=Counter(0, 999_999))
    assert [one.number for one in found] == [999_999, 1_000_000]


def test_a_record_that_does_not_state_its_length() -> None:
    bare = record(blockettes=())
    (refused,) = read(bare)
    assert isinstance(refused, Malformed)
    assert "blockette 1000" in refused.reason
    assert [one.number for one in read(bare * 2, record_bytes=256)] == [763_445] * 2
    with pytest.raises(FeedSettingsError, match="128 to 65536"):
        MiniSeedParser("quakes", record_bytes=100)


def broken(at: int, content: bytes) -> bytes:
    made = bytearray(record())
    made[at : at + len(content)] = content
    return bytes(made)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (broken(0, b"76344x"), "no miniSEED record begins here"),
        (broken(6, b"X"), "no miniSEED record begins here"),
        (broken(8, b"\xff"), "no miniSEED record begins here"),
        (broken(20, b"\0\0"), "either byte order"),
        (broken(22, b"\1\x6f"), "either byte order"),
        (broken(24, b"\x18"), "24:00:00"),
        (broken(28, b"\xff\xff"), "65535"),
        (broken(46, b"\0\1"), "blockette 1 of 2 is at 1"),
        (broken(50, b"\0\0"), "blockette 2 of 2 is at 0"),
        (broken(50, b"\0\x30"), "blockette 2 of 2 is at 48"),
        (broken(50, b"\xff\xff"), "blockette 2 of 2 is at 65535"),
        (broken(54, b"\x06"), r"2\^6"),
        (broken(54, b"\x1f"), "2147483648 bytes"),
        (broken(54, b"\xff"), r"2\^255"),
    ],
)
def test_a_malformed_record_is_reported_and_the_next_one_found(data: bytes, reason: str) -> None:
    before, after = record(5), record(6)
    found = read(before + data + after)
    assert [one.number for one in found] == [5, None, 6]
    report = found[1]
    assert isinstance(report, Malformed)
    assert report.position == len(before)
    assert re.search(reason, report.reason), report.reason


def test_noise_before_between_and_after_is_reported_once_each() -> None:
    noise = b"\0noise " * 50
    found = read(noise + record(5) + noise + record(6) + noise)
    assert [type(one).__name__ for one in found] == [
        "Malformed",
        "SourceMessage",
        "Malformed",
        "SourceMessage",
        "Malformed",
    ]


def test_memory_is_bounded_while_no_record_begins() -> None:
    parser = MiniSeedParser("quakes")
    for _ in range(200):
        parser.feed(bytes(10_000))
    assert len(parser._rest) < 100
    chain = pack(">HH", 100, 56)
    parser = MiniSeedParser("quakes", record_bytes_max=4_096)
    for _ in range(100):
        parser.feed(record(blockettes=(1000,) * 255, size=128)[:48] + chain * 100)
    assert len(parser._rest) < 10_000
