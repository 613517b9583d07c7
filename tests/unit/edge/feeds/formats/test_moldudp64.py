"""MoldUDP64: packets there and back, sessions as epochs, damaged datagrams (S2)."""

import re
import string
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.feeds.errors import FrameError
from edge.feeds.formats.moldudp64 import (
    EndOfSession,
    Heartbeat,
    MoldUdp64Parser,
    Request,
    build_downstream,
    build_end_of_session,
    build_request,
    epoch_of_session,
    parse_request,
)
from edge.feeds.source import NUMBER_MAX, Malformed, SourceMessage
from feeds.errors import FeedSettingsError
from tests.draw import examples, generator, times

few = settings(max_examples=examples(40))

characters = st.sampled_from(string.digits + string.ascii_letters)
sessions = st.text(characters, min_size=1, max_size=10)
numbers = st.one_of(st.integers(1, NUMBER_MAX - 20), st.sampled_from([2**31, 2**32 - 2, 2**32, 2**53, 2**63 - 30]))
messages = st.lists(st.binary(max_size=40), max_size=8)
PACKET = build_downstream("T1", 7, [b"one", b"", b"three"])


@few
@given(sessions, numbers, messages)
def test_a_downstream_packet_comes_back(session: str, number: int, sent: list[bytes]) -> None:
    found = MoldUdp64Parser("itch").datagram(build_downstream(session, number, sent))
    stream = f"itch@{epoch_of_session(session)}"
    if not sent:
        assert found == [Heartbeat(stream, number)]
        return
    assert [(one.stream, one.number, one.payload) for one in found if isinstance(one, SourceMessage)] == [
        (stream, number + index, payload) for index, payload in enumerate(sent)
    ]
    assert len(found) == len(sent)


@few
@given(sessions, numbers, st.integers(1, 20))
def test_requests_and_ends_of_session_come_back(session: str, number: int, count: int) -> None:
    request = Request(session, number, count)
    assert parse_request(build_request(request)) == request
    end = MoldUdp64Parser("itch").datagram(build_end_of_session(session, number))
    assert end == [EndOfSession(f"itch@{epoch_of_session(session)}", number)]


def test_the_bytes_are_those_of_the_specification() -> None:
    packet = build_downstream("T1", 7, [b"one", b"", b"three"])
    assert packet == b"T1        " + bytes(7) + b"\7\0\3" + b"\0\3one" + b"\0\0" + b"\0\5three"
    assert build_end_of_session("ABCDEFGHIJ", 258) == b"ABCDEFGHIJ" + bytes(6) + b"\1\2\xff\xff"
    assert build_request(Request("T1", 1, 2)) == b"T1        " + bytes(7) + b"\1\0\2"


def test_a_new_session_is_a_new_stream() -> None:
    parser = MoldUdp64Parser("itch")
    first, second = (parser.datagram(build_downstream(session, 1, [b"x"]))[0] for session in ("mon", "tue"))
    assert isinstance(first, SourceMessage)
    assert isinstance(second, SourceMessage)
    assert (first.stream, second.stream, first.number, second.number) == (
        f"itch@{epoch_of_session('mon')}",
        f"itch@{epoch_of_session('tue')}",
        1,
        1,
    )
    assert first.fields == {"session": "mon"}


def test_every_truncation_and_every_extension_is_malformed() -> None:
    """A damaged packet gives nothing: what it had can be requested."""
    parser = MoldUdp64Parser("itch")
    for count, size in enumerate(range(len(PACKET))):
        (found,) = parser.datagram(PACKET[:size])
        assert isinstance(found, Malformed)
        assert found.position == count
        assert (found.stream, found.number) == ((f"itch@{epoch_of_session('T1')}", 7) if size >= 20 else (None, None))
    (longer,) = parser.datagram(PACKET + b"\0")
    assert isinstance(longer, Malformed)
    assert "1 bytes follow" in longer.reason
    for size in range(20):
        with pytest.raises(FrameError, match="at least 20"):
            parse_request(build_request(Request("S", 1, 1))[:size])
    with pytest.raises(FrameError, match="follow"):
        parse_request(build_request(Request("S", 1, 1)) + b"x")


def test_mutated_packets_raise_nothing() -> None:
    draws, parser = generator("mutated MoldUDP64"), MoldUdp64Parser("itch")
    outcomes = set()
    for _ in range(times(2_000, 100_000)):
        changed = bytearray(PACKET)
        for _ in range(draws.randint(1, 3)):
            changed[draws.randrange(len(changed))] ^= draws.randint(1, 255)
        found = parser.datagram(bytes(changed))
        assert all(one.stream for one in found if not isinstance(one, Malformed))
        outcomes |= {type(one) for one in found}
    assert outcomes >= {Malformed, SourceMessage}


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"T1        " + pack(">QH", 0, 0), "number is 0"),
        (b"T1        " + pack(">QH", 2**63, 0), "0 to 9223372036854775807"),
        (b"T1        " + pack(">QH", 2**64 - 1, 0xFFFF), "0 to 9223372036854775807"),
        (b"T1        " + pack(">QHHH", NUMBER_MAX, 2, 0, 0), "0 to 9223372036854775807"),
        (b"          " + pack(">QH", 1, 0), "letters and digits"),
        (b" T1       " + pack(">QH", 1, 0), "letters and digits"),
        (b"S\xff        " + pack(">QH", 1, 0), "letters and digits"),
        (b"a#        " + pack(">QH", 1, 0), "letters and digits"),
        (b"T1        " + pack(">QHH", 1, 1, 9), "ends within message 1 of 1"),
        (b"T1        " + pack(">QHH", 1, 0xFFFF, 0), "2 bytes follow"),
        (b"T1        " + pack(">QHH", 1, 0, 0), "2 bytes follow"),
    ],
)
def test_malformed_packets(packet: bytes, reason: str) -> None:
    (found,) = MoldUdp64Parser("itch").datagram(packet)
    assert isinstance(found, Malformed)
    assert re.search(reason, found.reason), found.reason


def test_the_last_number_of_all_is_read() -> None:
    (found,) = MoldUdp64Parser("itch").datagram(build_downstream("S", NUMBER_MAX, [b"x"]))
    assert found == SourceMessage(f"itch@{epoch_of_session('S')}", NUMBER_MAX, b"x", None, {"session": "S"})


@pytest.mark.parametrize("count", [0, 0xFFFF])
def test_a_request_for_no_messages_is_none(count: int) -> None:
    with pytest.raises(FrameError, match="1 to 65534"):
        parse_request(b"T1        " + pack(">QH", 1, count))
    with pytest.raises(FeedSettingsError, match="1 to 65534"):
        build_request(Request("T1", 1, count))


@pytest.mark.parametrize(
    ("session", "number", "sent", "reason"),
    [
        ("", 1, [], "a session is"),
        ("12345678901", 1, [], "a session is"),
        ("\n", 1, [], "a session is"),
        ("S", 0, [], "1 to 9223372036854775807"),
        ("S", 2**63, [], "1 to 9223372036854775807"),
        ("S", 1, [bytes(65_536)], "longer than 65535"),
        ("S", 1, [bytes(65_500)], "does not fit a datagram"),
        ("S", 1, [b""] * 65_535, "more than 65534"),
    ],
)
def test_what_cannot_be_built(session: str, number: int, sent: list[bytes], reason: str) -> None:
    with pytest.raises(FeedSettingsError, match=reason):
        build_downstream(session, number, sent)


@given(sessions, sessions)
def test_each_session_has_an_epoch_of_its_own(one: str, other: str) -> None:
    assert (epoch_of_session(one) == epoch_of_session(other)) is (one == other)
    assert 0 < epoch_of_session(one) < 2**60
    if len(one) == len(other):
        assert (epoch_of_session(one) < epoch_of_session(other)) is (one < other)
    if one.isdigit() and other.isdigit() and not (one.startswith("0") or other.startswith("0")):
        assert (epoch_of_session(one) < epoch_of_session(other)) is (int(one) < int(other))
