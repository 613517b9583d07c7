"""`waystation feed`: the same lines of a file have the same numbers each time; what an adapter needs is said (S2)."""

import sys
from pathlib import Path

import pytest

from edge.cli import main as edge_main


def run(monkeypatch: pytest.MonkeyPatch, *words: str, command: str = "sequence") -> int:
    monkeypatch.setattr(sys, "argv", ["waystation", "feed", command, *words])
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


def test_an_adapter_has_an_example_and_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "--example", command="adapter") == 0
    example = capfd.readouterr().out
    file = tmp_path / "adapter.toml"
    file.write_text(example.replace("[kafka]", "[kafaka]"))
    assert run(monkeypatch, command="adapter") == 1
    assert "--config FILE" in capfd.readouterr().err
    assert run(monkeypatch, "--config", str(file), command="adapter") == 1
    assert "Did you mean [kafka]?" in capfd.readouterr().err
    file.write_text(example)
    for name in [*sys.modules]:  # as if kafka-python were not installed
        if name.partition(".")[0] == "kafka" or name.startswith(("edge.feeds.adapter", "edge.client.kafka_producer")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kafka", None)
    assert run(monkeypatch, "--config", str(file), command="adapter") == 1
    assert "pip install 'waystation-edge[kafka]'" in capfd.readouterr().err
