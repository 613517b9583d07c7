"""`waystation feed sequence` with a file: the same lines have the same numbers each time (S2)."""

import sys
from pathlib import Path

import pytest

from edge.cli import main as edge_main


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["waystation", "feed", "sequence", *words])
    with pytest.raises(SystemExit) as ended:
        edge_main.main()
    return int(ended.value.code or 0)


def test_a_file_is_numbered_from_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\n\nb")
    for _ in range(2):
        assert run(monkeypatch, str(lines), "--epoch", "51") == 0
        assert capfd.readouterr().out == "51:1\ta\n51:2\tb\n"


def test_errors_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = tmp_path / "numbers.json"
    for words, reason in (
        ((str(tmp_path / "none"),), "cannot be read"),
        ((str(tmp_path / "none"), "--state", str(state)), "remove --state"),
        ((str(Path(__file__)), "--epoch", "51", "--state", "x"), "remove --state"),
    ):
        assert run(monkeypatch, *words) == 1
        output = capfd.readouterr()
        assert reason in output.err
        assert not output.out
    assert not state.exists()
