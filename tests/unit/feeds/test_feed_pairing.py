"""Which two adapters can be a redundant pair, and why others cannot (S2)."""

import pytest

from feeds.counter import UINT32, Counter
from feeds.errors import FeedSettingsError
from feeds.line_mapping import LineMapping
from feeds.pairing import FeedSource, Paired, Refused, SourceFormat, decide

LINES = (SourceFormat.MODE_S, SourceFormat.NMEA0183, SourceFormat.NMEA2000)


def source(format: SourceFormat, **more: object) -> FeedSource:
    return FeedSource(format=format, **{"name": "x", **more})  # type: ignore[arg-type]


def mapped(**mapping: object) -> FeedSource:
    return source(SourceFormat.JSON, mapping=LineMapping(**mapping))  # type: ignore[arg-type]


@pytest.mark.parametrize("format", LINES)
def test_two_receivers_without_numbers_are_refused(format: SourceFormat) -> None:
    decision = decide(source(format), source(format))
    assert isinstance(decision, Refused)
    assert "has no sequence numbers, so nobody can tell a repeat from a copy" in decision.reason
    assert "waystation feed sequence" in decision.reason


@pytest.mark.parametrize("format", LINES)
def test_one_sequencer_in_front_of_both_makes_a_pair(format: SourceFormat) -> None:
    assert decide(source(format, sequencer="roof"), source(format, sequencer="roof")) == Paired("the sequencer roof")


def test_sources_with_numbers_are_pairs() -> None:
    mold, seed = source(SourceFormat.MOLDUDP64), source(SourceFormat.MINISEED)
    assert decide(mold, mold) == Paired("MoldUDP64's sequence numbers")
    assert decide(seed, seed) == Paired("miniSEED's sequence numbers", needs_near=True)
    assert decide(mapped(number="n"), mapped(number="n")) == Paired("the field n")
    assert decide(mapped(number="n", counter=UINT32), mapped(number="n", counter=UINT32)) == Paired("the field n", True)
    lines = source(SourceFormat.CSV, sequencer="a", mapping=LineMapping(is_numbered=True))
    assert decide(lines, lines) == Paired("the sequencer a")


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        (source(SourceFormat.MODE_S, sequencer="a"), source(SourceFormat.MODE_S, sequencer="b"), "independently"),
        (source(SourceFormat.MODE_S, sequencer="a"), source(SourceFormat.MODE_S), "the other are not"),
        (source(SourceFormat.MINISEED), source(SourceFormat.MOLDUDP64), "one adapter reads"),
        (source(SourceFormat.MINISEED), source(SourceFormat.MINISEED, name="y"), "differently"),
        (source(SourceFormat.MINISEED), source(SourceFormat.MINISEED, counter=Counter(0, 999_999)), "start over"),
        (source(SourceFormat.MINISEED), source(SourceFormat.MINISEED, epoch=1), "epochs"),
        (mapped(number="n"), mapped(number="m"), "different fields"),
        (mapped(number="n"), mapped(), "different fields"),
        (mapped(number="n", stream="s"), mapped(number="n"), "different fields"),
        (mapped(number="n", counter=UINT32), mapped(number="n"), "start over differently"),
        (mapped(), mapped(), "names no sequence number"),
    ],
)
def test_refused_pairs(one: FeedSource, other: FeedSource, reason: str) -> None:
    for decision in (decide(one, other), decide(other, one)):
        assert isinstance(decision, Refused)
        assert reason in decision.reason


@pytest.mark.parametrize(
    ("impossible", "reason"),
    [
        (source(SourceFormat.MOLDUDP64, sequencer="a"), "numbers of its own"),
        (source(SourceFormat.CSV), "needs a mapping"),
        (source(SourceFormat.MODE_S, mapping=LineMapping()), "has no mapping"),
        (source(SourceFormat.CSV, sequencer="a", mapping=LineMapping()), "if, and only if"),
        (source(SourceFormat.CSV, mapping=LineMapping(is_numbered=True)), "if, and only if"),
    ],
)
def test_a_source_that_is_not_possible(impossible: FeedSource, reason: str) -> None:
    with pytest.raises(FeedSettingsError, match=reason):
        decide(impossible, impossible)
