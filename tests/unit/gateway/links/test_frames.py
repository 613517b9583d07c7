"""Frames of links: round trip, every truncation, and what no gateway would send (Q6)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import LinkProtocolError
from gateway.links.frames import LARGEST, PING, PONG, PREFACE, Frame, FrameReader, opening
from schemas.leases import Claimant

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)
MEMBERS = st.builds(Claimant, NAMES, st.integers(0, (1 << 63) - 1))
OTHERS = st.builds(
    lambda kind, body: bytes([kind]) + len(body).to_bytes(2, "big") + body, st.integers(4, 255), st.binary(max_size=20)
)


@given(MEMBERS, st.lists(st.sampled_from([PING, PONG]) | OTHERS), st.lists(st.integers(1, 9)))
def test_what_is_sent_is_received_however_it_is_cut(me: Claimant, sent: list[bytes], cuts: list[int]) -> None:
    """Frames of later versions are passed over."""
    stream, reader, found = opening(me) + b"".join(sent), FrameReader(), list[Frame]()
    for cut in cuts:
        found += reader.receive(stream[:cut])
        stream = stream[cut:]
    found += reader.receive(stream)
    assert found == [me, *({PING: "ping", PONG: "pong"}[each] for each in sent if each in (PING, PONG))]


def test_no_truncation_gives_a_frame() -> None:
    stream = opening(Claimant("a", 1))
    for length in range(len(stream)):
        assert FrameReader().receive(stream[:length]) == []


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\n",
        b"WSL\x02",
        PREFACE + PING,
        opening(Claimant("a", 1)) + opening(Claimant("a", 1))[len(PREFACE) :],
        PREFACE + b"\x01\x00\x02{}",
        PREFACE + b"\x01\x00\x04\xff\xff\xff\xff",
        PREFACE + b"\x01" + (LARGEST + 1).to_bytes(2, "big"),
        opening(Claimant("a", 1)) + b"\x09\xff\xff",
        opening(Claimant("", 1)),
        opening(Claimant("a" * 256, 1)),
        opening(Claimant("a", -1)),
        opening(Claimant("a", 1)).replace(b'"v":1', b'"v":2'),
    ],
)
def test_what_no_gateway_sends_is_refused(stream: bytes) -> None:
    with pytest.raises(LinkProtocolError):
        FrameReader().receive(stream)


@given(MEMBERS, st.data())
def test_a_stream_that_was_changed_gives_frames_or_is_refused(me: Claimant, data: st.DataObject) -> None:
    stream = bytearray(opening(me) + PING + PONG)
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LinkProtocolError):
        FrameReader().receive(bytes(stream))
