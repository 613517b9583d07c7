"""What holds for every format of a byte stream, whatever comes: S2."""

import random
from itertools import pairwise

import pytest

from edge.feeds.source import Malformed, SourceMessage
from tests.draw import generator, times
from tests.unit.edge.feeds.source_data import BY_NAME, CASES, Case, Parser

Everything = list[SourceMessage | Malformed]
every_format = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def fed(parser: Parser, *parts: bytes) -> Everything:
    found = [one for part in parts for one in parser.feed(part)]
    return found + parser.end()


def pieces(data: bytes, draws: random.Random) -> list[bytes]:
    cuts = sorted({0, len(data), *(draws.randrange(len(data) + 1) for _ in range(draws.randrange(12)))})
    return [data[start:end] for start, end in pairwise(cuts)]


def mutated(data: bytes, draws: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draws.randint(1, 4)):
        at = draws.randrange(len(changed))
        kind = draws.randrange(4)
        if kind == 0:
            changed[at] ^= draws.randint(1, 255)
        elif kind == 1:
            del changed[at : at + draws.randint(1, 30)]
        elif kind == 2:
            changed[at:at] = draws.randbytes(draws.randint(1, 30))
        else:
            changed[at] = draws.choice(b'\n\r,:*\\$!{}[]"0\0\xff')
        if not changed:
            return b"\n"
    return bytes(changed)


@every_format
def test_all_frames_are_found_in_any_pieces(case: Case) -> None:
    data, draws = b"".join(case.frames), generator(f"pieces {case.name}")
    found = fed(case.parser(), data)
    assert all(isinstance(one, SourceMessage) for one in found)
    assert len(found) == len(case.frames)
    for message, frame in zip(found, case.frames, strict=True):
        assert frame.rstrip(b"\r\n").endswith(message.payload)  # type: ignore[union-attr]
    assert fed(case.parser(), *(data[at : at + 1] for at in range(len(data)))) == found
    for _ in range(times(30, 1_000)):
        assert fed(case.parser(), *pieces(data, draws)) == found


@every_format
def test_every_truncation_waits_and_is_never_another_message(case: Case) -> None:
    data = b"".join(case.frames)
    whole = fed(case.parser(), data)
    ends = [sum(map(len, case.frames[: count + 1])) for count in range(len(case.frames))]
    for size in range(len(data)):
        parser = case.parser()
        before = parser.feed(data[:size])
        complete = sum(end <= size for end in ends)
        assert before == whole[:complete]
        assert before + parser.feed(data[size:]) == whole
        if case.name not in ("csv", "json", "nmea2000"):  # a part of a CSV line is one too, and may end before CR LF
            cut = case.parser()
            cut.feed(data[:size])
            for one in cut.end():
                assert isinstance(one, Malformed) or one in whole
                assert isinstance(one, SourceMessage) or data[one.position :].startswith(case.frames[complete])


@every_format
def test_after_malformed_input_the_parser_goes_on(case: Case) -> None:
    """The reports have the position of the frame and say why; what comes after is read as if nothing had happened."""
    draws = generator(f"mutations {case.name}")
    whole = fed(case.parser(), b"".join(case.frames))
    reported = 0
    for _ in range(times(400, 20_000)):
        index = draws.randrange(len(case.frames))
        frames = list(case.frames)
        frames[index] = mutated(frames[index], draws) + (b"\n" if case.name != "miniseed" else b"")
        data = b"".join(frames)
        found = fed(case.parser(), *pieces(data, draws))
        assert found == fed(case.parser(), data)
        reports = [one for one in found if isinstance(one, Malformed)]
        reported += len(reports)
        assert all(one.reason and len(one.reason) < 400 and 0 <= one.position < len(data) for one in reports)
        if case.name != "miniseed":
            # Nothing but the changed frame can have been lost: each line stands for itself.
            payloads = [one.payload for one in found if isinstance(one, SourceMessage)]
            others = [one.payload for at, one in enumerate(whole) if at != index and isinstance(one, SourceMessage)]
            assert _contains_in_order(payloads, others)
    assert reported


def _contains_in_order(payloads: list[bytes], wanted: list[bytes]) -> bool:
    rest = iter(payloads)
    return all(one in rest for one in wanted)


@every_format
def test_any_bytes_are_no_error(case: Case) -> None:
    draws = generator(f"noise {case.name}")
    for _ in range(times(60, 3_000)):
        parser = case.parser()
        noise = draws.randbytes(draws.randrange(300))
        parser.feed(noise)
        parser.feed(b"\n" + case.frames[0])
        parser.end()
        again = parser.feed(case.frames[0])  # a parser can be used again after an end
        assert len([one for one in again if isinstance(one, SourceMessage)]) == 1


def test_a_line_that_is_too_long_is_reported_once_and_passed_over() -> None:
    case = BY_NAME["numbered"]
    long = b"51:77\t" + b"x" * 200_000 + b"\n"
    found = fed(
        case.parser(), case.frames[0], *(long[at : at + 999] for at in range(0, len(long), 999)), case.frames[1]
    )
    assert [type(one) for one in found] == [SourceMessage, Malformed, SourceMessage]
    report = found[1]
    assert isinstance(report, Malformed)
    assert (report.position, report.stream, report.number) == (len(case.frames[0]), "radar@51", 77)
    assert "longer than 65536 bytes" in report.reason
    bad = case.parser().feed(long + b"oh\n")
    assert bad[1] == Malformed(len(long), "the line does not begin with a sequencer's number: 'oh'")


def test_a_malformed_line_uses_its_number_up() -> None:
    """Both adapters see it; neither can publish it, and subscribers must not wait for it."""
    found = BY_NAME["numbered"].parser().feed(b'51:5\t{"frame":1}\n51:9\t')
    assert [(one.stream, one.number) for one in found] == [("radar@51", 5)]
    csv = BY_NAME["csv"].parser().feed(b"7,a,never,0\n")
    assert [(one.stream, one.number) for one in csv] == [("plant/a@0", 7)]


def test_a_torn_line_of_a_sequencer_is_no_message() -> None:
    line = BY_NAME["numbered"].frames[0]
    torn = fed(BY_NAME["numbered"].parser(), line.removesuffix(b"\n"))
    assert torn == [Malformed(0, "the input ends within a line", "radar@51", 1)]
