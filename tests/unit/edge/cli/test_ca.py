"""`waystation ca …` and `waystation agent enrol` as their users meet them (M5)."""

from pathlib import Path

import pytest

from edge.enrol.identity_files import load
from tests.unit.edge.cli.test_edge_main import Run, platform, run

__all__ = ["run"]


def test_from_the_first_command_to_a_revocation(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    platform(monkeypatch, None)
    assert run("ca", "init", "authority", "--name", "depot") == 0
    assert run("ca", "init", "authority") == 1
    assert "is not changed" in capsys.readouterr().err
    assert run("ca", "gateway", "authority", "platform", "platform") == 0
    assert run("ca", "issue", "authority", "van-7", "van", "--role", "exit-agent", "--valid", "90d") == 0
    assert load(tmp_path / "van").identity.name == "van-7"
    capsys.readouterr()
    assert run("ca", "token", "authority", "van-8") == 0
    token = capsys.readouterr().out.strip()
    assert token.startswith("wse-")
    assert run("ca", "revoke", "authority", "van-7") == 0
    assert "list 2 has 1 name;" in capsys.readouterr().out
    assert run("ca", "revoke", "authority", "van-7", "van-9") == 0
    assert run("ca", "list", "authority") == 0
    shown = capsys.readouterr().out
    for text in ("platform, gateway", "van-7, exit_agent, recipient", "van-8, recipient", "van-9", "number 3, 2 names"):
        assert text in shown
    assert token not in shown
    assert run("ca", "list", "nowhere") == 1
    assert "waystation ca init" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--valid", "1w"), ("--valid", "0h"), ("--role", "gateway")])
def test_wrong_options_are_refused(run: Run, words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ca", "init", "authority") == 0
    assert run("ca", "token", "authority", "van-7", *words) == 2
    assert words[1] in capsys.readouterr().err


def test_the_platform_has_no_name_that_gateways_refuse(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ca", "init", "authority") == 0
    assert run("ca", "gateway", "authority", "http-site", "identity") == 2
    assert "begins with 'http'" in capsys.readouterr().err


def test_enrolling_says_what_is_missing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("ca", "init", "authority")
    run("agent", "init", "van-7")
    capsys.readouterr()
    run("ca", "token", "authority", "van-8")
    token = capsys.readouterr().out.strip()
    for words, detail in (
        (("--token", token), "which gateway?"),
        (("--token", token, "--gateway", "http://127.0.0.1:9"), "the token is for van-8"),
        (("--token", "x", "--gateway", "http://127.0.0.1:9"), "no enrolment token"),
    ):
        assert run("agent", "enrol", *words) == 1
        assert detail in capsys.readouterr().err
