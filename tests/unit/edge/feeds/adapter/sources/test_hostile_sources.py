"""Hostile bytes through sources: whatever is cut off or changed, the source goes on, and makes up no message (S2)."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from edge.feeds.adapter.sources.stream import read_all
from edge.feeds.adapter.sources.udp import ParsedDatagrams
from edge.feeds.formats.moldudp64 import MoldUdp64Parser, build_downstream
from edge.feeds.source import Malformed, SourceMessage
from tests import draw
from tests.unit.edge.feeds.adapter.adapter_data import KeptIntake, composer
from tests.unit.edge.feeds.source_data import CASES, Case, Parser

CUTS = 40


def make_of(case: Case) -> Callable[[Mapping[str, int]], Parser]:
    return lambda _: case.parser()


def payloads_of(case: Case) -> list[bytes]:
    return [one.payload for one in case.parser().feed(b"".join(case.frames)) if isinstance(one, SourceMessage)]


async def through_a_connection(case: Case, data: bytes) -> KeptIntake:
    intake, reader = KeptIntake(), asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    await read_all(reader, make_of(case), intake, is_connection=True)  # type: ignore[arg-type]
    return intake


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_connection_that_is_cut_anywhere(case: Case) -> None:
    """What was complete is there, and the rest is no message: not even a line that would be one by itself."""
    whole, expected = b"".join(case.frames), payloads_of(case)
    ends = [sum(map(len, case.frames[: at + 1])) for at in range(len(case.frames))]

    async def scenario() -> None:
        for cut in draw.some(range(len(whole)), CUTS, f"cuts of {case.name}"):
            intake = await through_a_connection(case, whole[:cut])
            complete = sum(end <= cut for end in ends)
            assert intake.payloads == expected[:complete]
            is_torn = cut not in (0, *ends)
            assert len(intake.malformed) == is_torn
            made, _ = composer()
            for piece in intake.pieces:
                made.take(piece.found, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_byte_that_is_changed_anywhere(case: Case) -> None:
    """Over TCP and UDP: nothing is raised, and what is around it is read."""
    whole = b"".join(case.frames)

    async def scenario() -> None:
        draws = draw.generator(f"bytes of {case.name}")
        for at in draw.some(range(len(whole)), CUTS, f"changes of {case.name}"):
            changed = bytearray(whole)
            changed[at] ^= draws.randrange(1, 256)
            over_tcp = await through_a_connection(case, bytes(changed))
            over_udp = KeptIntake()
            reader = ParsedDatagrams(make_of(case), over_udp, has_lines=case.name != "miniseed")  # type: ignore[arg-type]
            start = 0
            for frame in case.frames:
                reader.datagrams([bytes(changed[start : start + len(frame)])])
                start += len(frame)
            for intake in (over_tcp, over_udp):
                made, counts = composer()
                for piece in intake.pieces:
                    for one in made.take(piece.found, 1):
                        assert len(one.stream) <= 255
                assert counts.messages == len(intake.payloads)

    asyncio.run(scenario())


def test_a_datagram_ends_where_it_ends() -> None:
    """A torn line is not joined with the next datagram."""
    case = next(one for one in CASES if one.name == "json")
    intake = KeptIntake()
    reader = ParsedDatagrams(make_of(case), intake, has_lines=True)  # type: ignore[arg-type]
    first, second, third = (frame.strip() for frame in case.frames)
    reader.datagrams([first, second[:10], second[10:], third, first + b"\n" + second])
    assert intake.payloads == [first, third, first, second]
    assert len(intake.malformed) == 2


def test_moldudp64_that_is_damaged_anywhere_gives_nothing() -> None:
    whole = build_downstream("S1", 2**32 - 1, [b"one", b"two"])
    parser = MoldUdp64Parser("m")
    for cut in range(len(whole)):
        assert all(isinstance(one, Malformed) for one in parser.datagram(whole[:cut]))
    assert len(parser.datagram(whole)) == 2
