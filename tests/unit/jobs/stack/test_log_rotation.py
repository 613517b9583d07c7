"""Logs are bounded while others go on writing to them, and nothing that they write is lost."""

from pathlib import Path

import pytest

from jobs.stack import log_rotation
from jobs.stack.log_rotation import Limits, rotate, tail


def content(log: Path, files: int) -> str:
    names = [log.with_name(f"{log.name}.{number}") for number in range(files, 0, -1)]
    return "".join(path.read_text() for path in (*names, log) if path.exists())


@pytest.fixture(params=["in one step", "by a copy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "by a copy":
        monkeypatch.setattr(log_rotation, "_collapse", lambda *_: False)
    return str(request.param)


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    assert not rotate(log, Limits(10, 2)), "there is none"
    log.write_text("x" * 10)
    assert not rotate(log, Limits(10, 2))
    assert list(tmp_path.iterdir()) == [log]


def test_a_log_is_bounded_and_so_many_files_are_kept(tmp_path: Path, way: str) -> None:
    log = tmp_path / "part.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(9):
            writer.write(f"{number}\n".encode() * 10_000)
            assert rotate(log, Limits(8_192, 3))
            assert log.stat().st_size <= 4_096
            writer.write(b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part.log", "part.log.1", "part.log.2", "part.log.3"]
    assert (tmp_path / "part.log.1").read_text().endswith("8\n")
    assert "6\n" in (tmp_path / "part.log.3").read_text()


def test_without_files_to_keep_it_begins_anew(tmp_path: Path, way: str) -> None:
    log = tmp_path / "part.log"
    log.write_text("a line\n" * 10_000)
    assert rotate(log, Limits(8_192, 0))
    assert log.stat().st_size <= 4_096
    assert list(tmp_path.iterdir()) == [log]


def test_each_line_is_whole_somewhere(tmp_path: Path, way: str) -> None:
    log = tmp_path / "part.log"
    lines = [f"line {number} {'x' * (number % 300)}" for number in range(1000)]
    log.write_text("\n".join(lines) + "\n")
    assert rotate(log, Limits(8_192, 1))
    assert dict.fromkeys(lines).keys() <= set(content(log, 1).splitlines())


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    assert tail(log) == ""
    log.write_text("a" * 100 + "end")
    assert tail(log, 5) == "aaend"[-5:]
