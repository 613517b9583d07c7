"""A file as a source: whole, growing, rotated, and continued where an earlier run stopped (S2)."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.feeds.adapter.resume import FilePlace
from edge.feeds.adapter.sources import rotation
from edge.feeds.adapter.sources.file import FileSource
from edge.feeds.adapter.sources.intake import Piece
from edge.feeds.adapter.sources.pace import Pace
from edge.feeds.errors import SourceUnusable
from edge.feeds.formats.csv_lines import csv_lines
from edge.feeds.formats.lines import Content, LineParser
from feeds.line_mapping import LineMapping
from tests.unit.edge.feeds.adapter.adapter_data import KeptIntake, message
from tests.unit.gateway.shard.virtual_time import run

PATIENCE_S = 30


def lines_of(path: Path, intake: KeptIntake, place: FilePlace | None = None, **more: Any) -> FileSource:
    return FileSource(
        path,
        lambda _: LineParser(lambda _: Content(), "src"),
        intake,
        place,
        **{"follows": False, "reads_head": False, "pace": None, **more},
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def followed(path: Path, place: FilePlace | None, steps: Callable[[KeptIntake], Any]) -> KeptIntake:
    """Follows a file while `steps` goes on."""
    intake = KeptIntake()

    async def scenario() -> None:
        running = asyncio.create_task(lines_of(path, intake, place, follows=True).run())
        await steps(intake)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled(), running.exception()

    asyncio.run(scenario())
    return intake


def test_it_continues_at_every_place(tmp_path: Path) -> None:
    """S2: from the place of any piece the rest is read, also after the last line without an end."""
    path = tmp_path / "x"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(30_000)) + b"last")
    intake = KeptIntake()
    asyncio.run(lines_of(path, intake).run())
    expected = [b"%d" % number for number in range(30_000)] + [b"last"]
    assert intake.payloads == expected
    assert len(intake.pieces) > 2
    seen = 0
    for piece in intake.pieces:
        seen += len(piece.found)
        rest = KeptIntake()
        asyncio.run(lines_of(path, rest, piece.place).run())
        assert rest.payloads == expected[seen:]


def test_the_header_line_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("n,v\n1,a\n2,b\n3,c\n")

    def source(intake: KeptIntake, place: FilePlace | None) -> FileSource:
        make = lambda _: LineParser(csv_lines(LineMapping(number="n")), "src")  # noqa: E731
        return FileSource(path, make, intake, place, follows=False, reads_head=True, pace=None)

    found = path.stat()
    intake = KeptIntake()
    asyncio.run(source(intake, FilePlace(found.st_dev, found.st_ino, 8)).run())
    assert intake.payloads == [b"2,b", b"3,c"]
    place = intake.pieces[-1].place
    assert place is not None
    assert (place.device, place.inode, place.offset) == (found.st_dev, found.st_ino, 16)


def test_a_growing_and_rotated_file(tmp_path: Path) -> None:
    """Whole lines only, the old file to its end, then the new one; also one that was cut short."""
    path = tmp_path / "log"

    async def steps(intake: KeptIntake) -> None:
        await until(lambda: "source_lost" in intake.states)
        path.write_bytes(b"1\n2")
        await until(lambda: intake.payloads == [b"1"])
        with path.open("ab") as file:
            file.write(b"2\n")
        await until(lambda: intake.payloads == [b"1", b"22"])
        path.rename(tmp_path / "log.1")
        with (tmp_path / "log.1").open("ab") as file:
            file.write(b"3\n")
        path.write_bytes(b"4\n5\n")
        await until(lambda: intake.payloads[-1] == b"5")
        path.write_bytes(b"6\n")
        await until(lambda: intake.payloads[-1] == b"6")

    assert followed(path, None, steps).payloads == [b"1", b"22", b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_writer_that_goes_on_in_the_rotated_file(tmp_path: Path, restarts: bool) -> None:
    """S2: logrotate makes the new file before the writer opens it, also while the adapter is down."""
    path, rotated = tmp_path / "log", tmp_path / "log.1"
    path.write_bytes(b"1\n")
    intake = KeptIntake()

    async def scenario() -> None:
        running = asyncio.create_task(lines_of(path, intake, follows=True).run())
        await until(lambda: intake.payloads == [b"1"])
        path.rename(rotated)
        path.touch()
        if restarts:
            running.cancel()
            await asyncio.wait([running])
            running = asyncio.create_task(lines_of(path, intake, intake.pieces[-1].place, follows=True).run())
        await asyncio.sleep(PATIENCE_S)  # of virtual time: it has seen the new file
        with rotated.open("ab") as file:
            file.write(b"2\n")
        path.write_bytes(b"3\n")
        await until(lambda: intake.payloads[-1] == b"3")
        running.cancel()

    run(scenario())
    assert intake.payloads == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_busy", [False, True])
def test_several_writers_that_open_the_new_file_one_after_the_other(tmp_path: Path, is_busy: bool) -> None:
    """S2: nothing of the one that is slower is left out, if it takes no longer than the settings say. One that never
    opens the new file does not keep the reader from it."""
    path, rotated = tmp_path / "log", tmp_path / "log.1"
    path.write_bytes(b"1\n")
    intake = KeptIntake()

    async def scenario() -> None:
        running = asyncio.create_task(lines_of(path, intake, follows=True, rotate_wait_s=5.0).run())
        await until(lambda: intake.payloads == [b"1"])
        path.rename(rotated)
        path.write_bytes(b"4\n")
        for line in (b"2\n", b"3\n"):
            await asyncio.sleep(2)  # of virtual time
            with rotated.open("ab") as file:
                file.write(line)
        while is_busy and b"4" not in intake.payloads:
            with rotated.open("ab") as file:
                file.write(b"more\n")
            await asyncio.sleep(0.1)
        await until(lambda: intake.payloads[-1] == b"4")
        running.cancel()

    run(scenario())
    assert [one for one in intake.payloads if one != b"more"] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(("most", "expected"), [(100, b"01234"), (2, b"0124")])
def test_several_rotations_while_the_reader_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int, expected: bytes
) -> None:
    """S2: as it does while Kafka is away. The files between are read, though they are gone. Beyond the limit the log
    says that they are lost."""
    monkeypatch.setattr(rotation, "WAITING_MAX", most)
    path = tmp_path / "log"
    path.write_bytes(b"0\n")
    goes_on = asyncio.Event()

    class Waiting(KeptIntake):
        async def take(self, piece: Piece) -> None:
            await super().take(piece)
            await goes_on.wait()

    intake = Waiting()

    async def scenario() -> None:
        running = asyncio.create_task(lines_of(path, intake, follows=True).run())
        await until(lambda: intake.payloads == [b"0"])
        for number in range(1, 5):
            path.rename(tmp_path / "log.1")
            path.write_bytes(b"%d\n" % number)
            await asyncio.sleep(1)  # of virtual time
        goes_on.set()
        await until(lambda: intake.payloads[-1] == b"4")
        running.cancel()

    run(scenario())
    assert b"".join(intake.payloads) == expected
    assert ("are lost" in caplog.text) == (most == 2)


def test_a_file_that_was_rotated_while_the_adapter_was_down(tmp_path: Path) -> None:
    """S2: it is found by its inode, and what is newer follows."""
    path = tmp_path / "log"
    for at, name in enumerate(("log.3", "log.2", "log.1", "log")):
        (tmp_path / name).write_text(f"{name} a\n{name} b\n")
        os.utime(tmp_path / name, (at, at))
    found = (tmp_path / "log.2").stat()

    async def steps(intake: KeptIntake) -> None:
        await until(lambda: bool(intake.payloads) and intake.payloads[-1] == b"log b")

    intake = followed(path, FilePlace(found.st_dev, found.st_ino, len("log.2 a\n")), steps)
    assert intake.payloads == [b"log.2 b", b"log.1 a", b"log.1 b", b"log a", b"log b"]


def test_rotations_while_older_files_are_read(tmp_path: Path) -> None:
    """S2: after a restart; each file is found under whatever name it has by then."""
    path = tmp_path / "log"
    for at, name in enumerate(("log.2", "log.1", "log")):
        (tmp_path / name).write_text(f"{at}\n")
        os.utime(tmp_path / name, (at, at))
    found = (tmp_path / "log.2").stat()

    class Rotating(KeptIntake):
        async def take(self, piece: Piece) -> None:
            await super().take(piece)
            if self.payloads == [b"0"]:
                for old, new in (("log.2", "log.3"), ("log.1", "log.2"), ("log", "log.1")):
                    (tmp_path / old).rename(tmp_path / new)
                path.write_text("3\n")

    intake = Rotating()

    async def scenario() -> None:
        place = FilePlace(found.st_dev, found.st_ino, 0)
        running = asyncio.create_task(lines_of(path, intake, place, follows=True).run())
        await until(lambda: bool(intake.payloads) and intake.payloads[-1] == b"3")
        running.cancel()

    run(scenario())
    assert intake.payloads == [b"0", b"1", b"2", b"3"]


def test_a_file_that_is_gone_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log"
    path.write_text("new\n")
    intake = KeptIntake()
    asyncio.run(lines_of(path, intake, FilePlace(0, 1, 4)).run())
    assert intake.payloads == [b"new"]
    assert "lost here" in caplog.text
    with pytest.raises(SourceUnusable, match="cannot be read"):
        asyncio.run(lines_of(tmp_path / "none", intake).run())


def test_a_replay_keeps_the_order_and_the_place() -> None:
    """Parts of a piece come one after the other, and only the last one says that all is read."""

    async def scenario() -> list[Piece]:
        place = FilePlace(0, 0, 9)
        piece = Piece([message(number, at_us=number * 60_000_000) for number in range(4)] + [message(4)], 1, place)
        return [part async for part in Pace(1_000.0).parts(piece)]

    parts = run(scenario())
    assert [one.number for part in parts for one in part.found if hasattr(one, "number")] == [0, 1, 2, 3, 4]
    assert [part.place for part in parts] == [None] * (len(parts) - 1) + [FilePlace(0, 0, 9)]
    assert len(parts) == 4
