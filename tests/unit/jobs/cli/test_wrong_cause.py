"""An error names its cause: the directory that was looked in, the name that was wrong. Nothing is made on the way."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.stack.state import StackState, write_state

Run = Callable[..., int]

NEEDS_LEDGER = (
    ["query", "SELECT * FROM messages"],
    ["journey", "x"],
    ["explain", "x"],
    ["audit", "--date", "today"],
    ["quality"],
    ["quality", "--date", "yesterday"],
    ["report"],
    ["report", "--date", "today"],
    ["maintain"],
    ["maintain", "--dry-run"],
)
NEEDS_STACK = (
    ["status"],
    ["sessions"],
    ["session", "x"],
    ["kick", "x"],
    ["publish", "a", "b"],
    ["subscribe", "a"],
    ["router", "replace"],
)


def joined(arguments: list[str]) -> str:
    return " ".join(arguments)


@pytest.mark.parametrize("arguments", [*NEEDS_LEDGER, *NEEDS_STACK], ids=joined)
def test_a_data_directory_that_is_not_there_is_the_cause(
    run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    assert run("--data", str(nowhere), *arguments) != 0
    err = capfd.readouterr().err
    assert f"no stack has ever run in {nowhere}, which does not exist: start one" in err
    assert "waystation up" in err
    assert "--data" in err
    assert err.count("\n") == 1
    assert not nowhere.exists()


@pytest.mark.parametrize("arguments", NEEDS_LEDGER, ids=joined)
def test_where_no_stack_has_written_the_directory_is_named(
    run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    assert run(*arguments) != 0
    assert f"there are no tables in {tmp_path / 'tables'}, because no stack has run there: " in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", NEEDS_STACK, ids=joined)
def test_where_none_runs_the_directory_is_named(
    run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    assert run(*arguments) == 1
    assert f"no stack is running in {tmp_path}: start one" in capfd.readouterr().err


@pytest.mark.parametrize("arguments", NEEDS_LEDGER, ids=joined)
def test_a_stack_that_has_only_begun_is_the_cause(
    run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    write_state(tmp_path, _running())
    assert run(*arguments) != 0
    assert (
        f"no tables in {tmp_path / 'tables'} yet: the running stack is about to create them" in capfd.readouterr().err
    )


def test_a_table_that_is_not_there_is_named_with_those_that_are(
    run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path / "tables" / "messages"), pa.table({"id": ["m1"]}))
    assert run("query", "SELECT * FROM mesages") == 1
    assert "mesages does not exist" in (err := capfd.readouterr().err)
    assert "the tables and views are: messages" in err


def test_what_is_no_application_is_the_cause_before_the_cluster_is(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("submit", "nosuch", "--conf", "/nowhere.toml") == 1
    assert "unknown application 'nosuch': choose from router, ledger, maintain" in capfd.readouterr().err
    assert run("submit", "ruoter") == 1
    assert "Did you mean router?" in capfd.readouterr().err
    assert run("submit", "ledger", "--role", "active") == 1
    assert "--role is only for routers" in capfd.readouterr().err


@pytest.mark.parametrize("command", [["audit"], ["quality"], ["report"], ["quality", "--since"], ["demo"]], ids=joined)
def test_what_is_no_date_is_said_in_the_same_words_everywhere(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    name, *option = command
    assert run(name, *(option or ["--date"]), "tomorow") == 2
    assert "'tomorow' is not a date: write 2026-11-22, today or yesterday (UTC)" in capfd.readouterr().err


def test_a_second_stack_in_the_background_leaves_the_log_of_the_first(
    run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be emptied, and get the refusal."""
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("nothing is to be started"))
    write_state(tmp_path, _running())
    log = tmp_path / "logs" / "up.log"
    log.parent.mkdir()
    log.write_text("what the first one said\n")
    assert run("--data", str(tmp_path), "up", "--detach") == 1
    assert f"a stack (pid {os.getpid()}) is already running in {tmp_path}" in capfd.readouterr().err
    assert log.read_text() == "what the first one said\n"


def _running() -> StackState:
    """A stack that has only begun; its `up` is this process."""
    return StackState(
        supervisor_pid=os.getpid(),
        supervisor_create_time=psutil.Process().create_time(),
        ready=False,
        bootstrap="",
        listeners={},
        configuration=[],
        processes=[],
    )
