"""Numbering lines: each once, never the same number again, whatever crashes (S2)."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.feeds.errors import OutputClosed, SequenceStateError
from edge.feeds.formats.lines import PREFIX
from edge.feeds.sequence import Reserved, Sequencer
from edge.feeds.sequence_command import sequence
from edge.feeds.sequence_state import SequenceState
from edge.feeds.source import NUMBER_MAX
from feeds.errors import FeedSettingsError
from tests.draw import examples, generator, times

few = settings(max_examples=examples(40))

NEW = Reserved(51, 0, is_in_order=True)


def run(sequencer: Sequencer, *parts: bytes) -> bytes:
    written = b""
    for part in parts:
        sequencer.reserve(part)
        written += sequencer.number(part)
    return written + sequencer.end()


@few
@given(st.lists(st.sampled_from([b"a", b"bc\xff", b"\r", b"\n", b"\r\n", b"\n\n", b"", b"x\ty"]), max_size=30))
def test_lines_come_out_numbered_in_any_pieces(parts: list[bytes]) -> None:
    data = b"".join(parts)
    wanted = [line for line in data.split(b"\n") if line not in (b"", b"\r")]
    if data.split(b"\n")[-1] == b"\r":
        assert run(Sequencer(NEW, 1), *parts) == run(Sequencer(NEW, 9), data)
    written = run(Sequencer(NEW, 3), *parts)
    assert written == b"".join(b"51:%d\t%b\n" % pair for pair in enumerate(wanted, start=1))


@few
@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(1, 7), st.integers(0, 10**6))
def test_numbers_are_reserved_before_they_are_used(parts: list[bytes], block: int, start: int) -> None:
    sequencer, reserved = Sequencer(Reserved(51, start, is_in_order=True), block), start
    for part in parts:
        found = sequencer.reserve(part)
        if found is not None:
            assert found.number > reserved
            assert not found.is_in_order
            reserved = found.number
        sequencer.number(part)
        assert sequencer.last <= reserved
    assert sequencer.ended(is_in_order=True).number == sequencer.last


def test_after_crashes_no_number_is_used_twice() -> None:
    """The process dies at any step; what was written before may have been read."""
    draws = generator("sequence crashes")
    for _ in range(times(100, 5_000)):
        on_disk, written = NEW, b""
        for _ in range(draws.randint(1, 6)):
            sequencer = Sequencer(on_disk, draws.randint(1, 5))
            for _ in range(draws.randint(0, 5)):
                data = draws.choice([b"line\n", b"one\ntwo\n", b"half", b"\n"])
                reserved = sequencer.reserve(data)
                if reserved is not None and draws.random() < 0.8:
                    on_disk = reserved
                elif reserved is not None:
                    break  # before the disk had it: nothing was written
                numbered = sequencer.number(data)
                written += numbered[: draws.choice([len(numbered), draws.randint(0, len(numbered))])]
                if draws.random() < 0.2:
                    break
        numbers = [int(found[1]) for found in re.finditer(rb"^51:(\d+)\t", written, re.MULTILINE)]
        assert numbers == sorted(set(numbers))


def test_after_a_crash_a_line_begins_at_its_beginning() -> None:
    assert run(Sequencer(Reserved(51, 9, is_in_order=False), 1), b"a\n") == b"\n51:10\ta\n"


@pytest.mark.parametrize("start", [2**32 - 1, 2**63 - 20])
def test_large_numbers(start: int) -> None:
    written = run(Sequencer(Reserved(51, start, is_in_order=True), 1_000), b"a\nb\n")
    assert written == b"51:%d\ta\n51:%d\tb\n" % (start + 1, start + 2)
    assert PREFIX.match(written)


def test_there_are_no_numbers_left() -> None:
    with pytest.raises(FeedSettingsError, match="begin a new epoch"):
        Sequencer(Reserved(51, NUMBER_MAX - 1, is_in_order=True), 1).reserve(b"a\nb\n")


@pytest.mark.parametrize("epoch", [-1, 2**63])
def test_an_epoch_that_cannot_be_one(epoch: int) -> None:
    with pytest.raises(FeedSettingsError, match="0 to 9223372036854775807"):
        Sequencer(Reserved(epoch, 0, is_in_order=True), 1)
    with pytest.raises(FeedSettingsError, match="at least one"):
        Sequencer(NEW, 0)


def piped(data: bytes, tmp_path: Path, state: Path | None, **options: int) -> bytes:
    source = tmp_path / "in"
    source.write_bytes(data)
    into = tmp_path / "out"
    with source.open("rb") as opened, into.open("wb") as output:
        sequence(opened.fileno(), output.fileno(), state, 17, block=100, **options)
    return into.read_bytes()


def test_a_state_file_goes_on_without_a_gap_after_an_end(tmp_path: Path) -> None:
    state = tmp_path / "numbers.json"
    assert piped(b"a\nb\n", tmp_path, state) == b"17:1\ta\n17:2\tb\n"
    assert piped(b"c", tmp_path, state) == b"17:3\tc\n"
    with pytest.raises(FeedSettingsError, match="is of epoch 17"):
        piped(b"d\n", tmp_path, state, epoch=18)
    assert piped(b"d\n", tmp_path, None, epoch=18) == b"18:1\td\n"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    state = tmp_path / "numbers.json"
    with SequenceState(state), pytest.raises(SequenceStateError, match="another process"):
        piped(b"a\n", tmp_path, state)
    assert piped(b"a\n", tmp_path, state) == b"17:1\ta\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        b"5",
        b'{"epoch":"1","number":1,"is_in_order":true}',
        b'{"epoch":1,"number":-1,"is_in_order":true}',
    ],
)
def test_a_damaged_state_file_is_no_beginning(content: bytes, tmp_path: Path) -> None:
    state = tmp_path / "numbers.json"
    state.write_bytes(content)
    with pytest.raises(SequenceStateError, match="is damaged"):
        piped(b"a\n", tmp_path, state)
    assert state.read_bytes() == content


def test_nothing_is_written_that_the_disk_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "numbers.json").mkdir()
    (tmp_path / "numbers.json" / "x").touch()
    with pytest.raises(SequenceStateError, match="cannot be read"):
        piped(b"a\n", tmp_path, tmp_path / "numbers.json")
    with pytest.raises(SequenceStateError, match="cannot be opened"):
        piped(b"a\n", tmp_path, tmp_path / "none" / "numbers.json")
    assert (tmp_path / "out").read_bytes() == b""


def test_a_reader_that_has_ended(tmp_path: Path) -> None:
    """What it may have read is not numbered again."""
    state, source = tmp_path / "numbers.json", tmp_path / "in"
    source.write_bytes(b"a\nb\n")
    reading, writing = os.pipe()
    os.close(reading)
    with source.open("rb") as opened, pytest.raises(OutputClosed, match="nobody reads"):
        sequence(opened.fileno(), writing, state, 17, block=100)
    os.close(writing)
    assert piped(b"c\n", tmp_path, state) == b"\n17:3\tc\n"
