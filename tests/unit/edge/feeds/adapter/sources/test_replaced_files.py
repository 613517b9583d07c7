"""Another file has the inode of the one that was read last: reading does not continue in it (S2)."""

import asyncio
import os
from pathlib import Path

import pytest

from edge.feeds.adapter.resume import FilePlace
from tests.unit.edge.feeds.adapter.adapter_data import KeptIntake
from tests.unit.edge.feeds.adapter.sources.test_file_source import lines_of


def read(path: Path, place: FilePlace | None = None) -> tuple[list[bytes], FilePlace]:
    """What is read from a place on, and the place at the end."""
    intake = KeptIntake()
    asyncio.run(lines_of(path, intake, place).run())
    found = intake.pieces[-1].place
    assert found is not None
    return intake.payloads, found


def overwrite(path: Path, content: bytes) -> None:
    """As `cp` does onto a file: the inode stays."""
    inode = path.stat().st_ino
    path.write_bytes(content)
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("lines", [1, 5_000])
def test_a_file_with_the_inode_of_a_removed_one_is_read_from_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: int
) -> None:
    """File systems give a free inode to the next file. The new one is longer than what was read of the old one."""
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"old %d\n" % number for number in range(lines)))
    _, place = read(path)
    expected = [b"new %d" % number for number in range(2 * lines)]
    overwrite(path, b"".join(line + b"\n" for line in expected))
    payloads, after = read(path, place)
    assert payloads == expected
    assert "was replaced or overwritten" in caplog.text
    assert read(path, after)[0] == []


def test_a_file_that_was_only_written_on_is_continued(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """From each place in it, before and behind what is compared of its beginning."""
    path = tmp_path / "log"
    path.write_bytes(b"")
    place: FilePlace | None = None
    for number in range(40):
        with path.open("ab") as file:
            file.write(b"%d %s\n" % (number, b"x" * 50))
        payloads, place = read(path, place)
        assert payloads == [b"%d %s" % (number, b"x" * 50)]
    assert not caplog.records


def test_a_rotated_file_with_the_inode_of_a_removed_one_is_not_continued(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is another source's, or a compressed one, beside the present file."""
    path, rotated = tmp_path / "log", tmp_path / "log.1"
    rotated.write_bytes(b"old\n")
    _, place = read(rotated)
    overwrite(rotated, b"other content\n")
    path.write_bytes(b"new\n")
    for at, one in enumerate((rotated, path)):
        os.utime(one, (at, at))
    assert read(path, place)[0] == [b"new"]
    assert "is lost here" in caplog.text


def test_a_place_of_a_checkpoint_without_the_beginning_counts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"1\n2\n")
    found = path.stat()
    assert read(path, FilePlace(found.st_dev, found.st_ino, 2))[0] == [b"2"]
