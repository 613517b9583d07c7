"""What an adapter writes of what its source brings, also of one that lies about its numbers (S2)."""

import pytest

from edge.feeds.adapter.resume import LogFold
from edge.feeds.formats.moldudp64 import EndOfSession, Heartbeat
from edge.feeds.source import Malformed
from feeds.message import NUMBER_MAX, FeedMessage, decode, encode
from feeds.passed import PassedRecord
from tests.unit.edge.feeds.adapter.adapter_data import ADAPTER, composer, message, numbers


def test_stamps_follow_the_log() -> None:
    """S2: the message sequence continues where the log ends, and so do the numbers of a source without any."""
    log = LogFold(ADAPTER, None)
    log.own(FeedMessage("src@0", 7, 0, 40, 1, ADAPTER, b""), is_since=True)
    log.other(FeedMessage("src@0", 9, 0, 80, 1, "other", b""))
    made, counts = composer(log)
    written = made.take([message(None, b"a"), message(None, b"b"), message(None, b"c", "new@0")], 5)
    assert [(one.stream, one.sequence, one.message_sequence, one.read_us, one.adapter) for one in written] == [
        ("src@0", 10, 41, 5, ADAPTER),
        ("src@0", 11, 42, 5, ADAPTER),
        ("new@0", 1, 43, 5, ADAPTER),
    ]
    assert counts.messages == 3


@pytest.mark.parametrize("number", [2**32 - 1, 2**32, 2**63 - 1])
def test_great_numbers_are_written_as_they_are(number: int) -> None:
    made, _ = composer()
    (written,) = made.take([message(number)], 5)
    assert isinstance(written, FeedMessage)
    assert decode(*encode(written)).sequence == number
    assert made.last == {"src@0": number}


@pytest.mark.parametrize("number", [None, NUMBER_MAX + 1])
def test_numbers_end(number: int | None) -> None:
    """Nothing is written under a number that does not exist, whether it is made here or by a counter's rounds."""
    made, counts = composer()
    made.take([message(NUMBER_MAX)], 5)
    assert made.take([message(number)], 5) == []
    assert made.last == made.highest == {"src@0": NUMBER_MAX}
    assert counts.refused == 1


def test_numbers_that_go_backwards_are_written_and_counted() -> None:
    """The merger decides by number; a source that begins anew without a new epoch shows in a count."""
    made, counts = composer()
    written = made.take([message(one) for one in (5, 6, 3, 6, 7)], 5)
    assert numbers(written) == [5, 6, 3, 6, 7]
    assert counts.backwards == 2
    assert made.positions()["src@0"].sequence == 7


def test_a_source_with_too_many_streams_is_cut_off() -> None:
    made, counts = composer(streams=3)
    written = made.take([message(1, stream=f"s{one}@0") for one in range(9)], 5)
    assert len(written) == 3
    assert counts.refused == 6
    assert len(made.positions()) == 3


def test_positions_are_of_the_streams_written_last() -> None:
    made, _ = composer(streams=1_000)
    made.take([message(1, stream=f"s{one}@0") for one in range(100)], 5)
    made.take([message(2, stream="s0@0")], 6)
    assert len(made.positions()) == 64
    assert list(made.positions())[-1] == "s0@0"


def test_a_number_that_brings_nothing_is_passed() -> None:
    """S2: behind what was written before, and only if it is the next one: a later message says the same."""
    made, counts = composer()
    written = made.take([message(5), Malformed(9, "torn", "src@0", 6), message(7)], 5)
    assert [type(one) for one in written] == [FeedMessage, PassedRecord, FeedMessage]
    assert written[1] == PassedRecord("src@0", 6, 1, 5, ADAPTER)
    hostile = [Malformed(0, "x", "src@0", 2**63 - 1), Malformed(0, "x", "src@0", 3), Malformed(0, "x", "none@0", 1)]
    assert made.take([*hostile, Malformed(0, "x")], 5) == []
    assert counts.malformed == 5
    assert numbers(made.take([message(8)], 5)) == [8]


def test_a_quiet_source_passes_what_it_has_announced() -> None:
    made, _ = composer()
    written = made.take([message(5), Heartbeat("src@0", 6), Heartbeat("src@0", 9), EndOfSession("src@0", 9)], 5)
    assert written[1:] == [PassedRecord("src@0", 8, 1, 5, ADAPTER)]
    assert made.take([Heartbeat("unknown@0", 9)], 5) == []
