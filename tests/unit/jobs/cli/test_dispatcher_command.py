"""`waystation dispatcher`: becomes the dispatcher's process, with the configuration of the command (R1)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., int]


def test_it_becomes_the_process_of_the_dispatcher(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda program, argv, environ: started.append((argv, environ)))
    monkeypatch.setenv("WAYSTATION_GATEWAY__CLUSTER__SOCKETS", str(tmp_path / "sockets"))
    assert run("dispatcher") == 0
    ((argv, environ),) = started
    assert argv[1:] == ["-m", "gateway.dispatch"]
    assert environ["WAYSTATION_DATA"] == str(tmp_path)
    assert environ["WAYSTATION_GATEWAY__CLUSTER__SOCKETS"] == str(tmp_path / "sockets")


def test_without_the_directory_of_sockets_it_says_what_to_set(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("dispatcher") == 1
    assert "gateway.cluster.sockets is empty" in capfd.readouterr().err
