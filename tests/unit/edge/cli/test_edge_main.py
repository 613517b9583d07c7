"""`waystation` with and without the platform; errors are one sentence (M20)."""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from edge.cli import main as edge_main
from edge.cli import resident

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def one(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["waystation", *words])
        with pytest.raises(SystemExit) as ended:
            edge_main.main()
        return int(ended.value.code or 0)

    return one


def platform(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    found = None if value is None else EntryPoint("platform", value, edge_main.GROUP)
    monkeypatch.setattr(edge_main, "_platform", lambda: found)


def test_without_the_platform(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    platform(monkeypatch, None)
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("waystation ")
    assert run("--help") == 0
    assert "agent" in capsys.readouterr().out
    assert run("publish", "a", "b") == 2
    assert "install the distribution waystation" in capsys.readouterr().err


def test_with_a_platform_that_cannot_be_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    platform(monkeypatch, "no_such_module:main")
    assert run("publish") == 2
    assert "cannot be loaded" in capsys.readouterr().err
    assert run("agent", "--help") == 0


def test_feed_has_commands_of_the_device_and_of_the_platform(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1, S2: a device numbers lines; the platform also administers feeds."""
    platform(monkeypatch, None)
    assert run("feed", "sequence", "--help") == 0
    assert run("feed", "--help") == 0
    assert "replay" not in capsys.readouterr().out
    assert run("feed", "status", "radar") == 2
    assert "`waystation feed status` is a command of the platform" in capsys.readouterr().err
    platform(monkeypatch, "jobs.cli.main:main")
    assert run("feed", "sequence", "--help") == 0
    assert run("feed", "--help") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("sequence", "list", "status", "subscribe", "switch", "replay"))
    assert run("feed", "replay", "--help") == 0


def test_all_other_words_are_the_platforms(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    platform(monkeypatch, "jobs.cli.main:main")
    assert run("--version") == 0
    assert run("up", "--help") == 0


def test_init_and_a_clear_error_without_an_agent(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("agent", "status") == 1
    assert capsys.readouterr().err == (
        "cannot read the configuration file agent.toml: No such file or directory; "
        "write one with `waystation agent init CLIENT-ID`, or name another one with --conf\n"
    )
    assert run("agent", "init", "van-7") == 0
    assert (tmp_path / "agent.toml").stat().st_mode & 0o077 == 0
    assert run("agent", "init", "van-7") == 1
    assert "exists" in capsys.readouterr().err
    for words in (("status",), ("log",), ("trace", "x"), ("send", "@b", "text")):
        assert run("agent", *words) == 1
        assert "no agent runs" in capsys.readouterr().err
    assert run("agent", "send", "@b") == 2


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ((), "agent.toml"),
        (("--conf", "a.toml"), "a.toml"),
        (("--conf=a.toml",), "a.toml"),
        (("--help",), None),
        (("--conf",), None),
        (("--conf", "-x"), None),
        (("more",), None),
    ],
)
def test_which_words_run_the_agent_at_once(words: tuple[str, ...], name: str | None) -> None:
    """All others are explained by the full command line."""
    assert resident.settings_file(["agent", "up", *words]) == (None if name is None else Path(name))
    assert resident.settings_file(["agent", "status", *words]) is None
