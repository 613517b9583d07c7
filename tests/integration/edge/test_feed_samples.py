"""Recordings of real sources, read by the parsers (S2). `make samples` downloads them; without them this is skipped."""

import os
from pathlib import Path

import pytest

from edge.feeds.formats.lines import LineFormat, LineParser
from edge.feeds.formats.miniseed import MiniSeedParser
from edge.feeds.formats.mode_s import mode_s
from edge.feeds.formats.nmea2000 import nmea2000
from edge.feeds.source import SourceMessage
from tests.draw import generator
from tools.install_feed_samples import samples_directory

CHUNK = 30_000
MESSAGES = {"full_flight_short.jsonl": 57_793, "aava-n2k.data": 21_595}


def sample(name: str) -> Path:
    path = samples_directory(os.environ) / name
    if not path.exists():
        pytest.skip(f"{path} is not there: run `make samples`, which downloads 51 MB")
    return path


def records(name: str) -> dict[int, SourceMessage]:
    parser, data, draws = MiniSeedParser("quakes"), sample(name).read_bytes(), generator(name)
    found = []
    while data:
        size = draws.randint(1, 2_000)
        found += parser.feed(data[:size])
        data = data[size:]
    assert not parser.end()
    messages = [one for one in found if isinstance(one, SourceMessage)]
    assert messages == found
    by_number = {one.number: one for one in messages if one.number is not None}
    assert len(by_number) == len(found)
    return by_number


@pytest.mark.parametrize(("name", "line_format"), [("full_flight_short.jsonl", mode_s), ("aava-n2k.data", nmea2000)])
def test_every_line_of_a_recording_is_a_message(name: str, line_format: LineFormat) -> None:
    parser, count = LineParser(line_format, "x"), 0
    with sample(name).open("rb") as source:
        while data := source.read(CHUNK):
            found = parser.feed(data)
            assert all(isinstance(one, SourceMessage) for one in found)
            count += len(found)
    assert not parser.end()
    assert count == MESSAGES[name]


def test_miniseed_with_gaps_and_with_other_contents_under_the_same_numbers() -> None:
    gaps, other = records("gaps.mseed"), records("timingquality.mseed")
    assert {one.stream for one in (*gaps.values(), *other.values())} == {"quakes/BW.BGLD..EHE@0"}
    assert set(range(763_445, 763_577)) - gaps.keys() == {763_446, 763_449, 763_452, 763_453}
    assert (min(gaps), max(gaps)) == (763_445, 763_576)
    assert sorted(other) == list(range(763_445, 763_546))
    common = gaps.keys() & other.keys()
    assert len(common) == 97
    assert all(gaps[number].payload != other[number].payload for number in common)
    first = gaps[763_445]
    assert (first.at_us, first.fields["samples"]) == (1_199_145_599_915_000, 412)  # 2007-12-31T23:59:59.915
