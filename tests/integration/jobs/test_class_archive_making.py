"""The archive of Spark's classes: whose it is, how it is made, and that nothing depends on it."""

import os
import sys
from pathlib import Path
from threading import Event

import psutil
import pytest

from jobs.stack import class_archive as archives
from jobs.stack.java import Java
from tests.waiting import wait_for

MAKES = 'for last; do :; done; echo archive > "$last"'
FAILS = "echo no room; exit 3"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A cache of its own and a JDK that is not there; no training but what `training` says."""
    home = tmp_path / "jdk"
    monkeypatch.setattr(archives, "find_java", lambda _: Java(home, 17))
    monkeypatch.setattr(archives, "resolve", lambda *_: None)
    return {"WAYSTATION_CACHE": str(tmp_path / "cache"), "JAVA_HOME": str(home), "PATH": os.environ["PATH"]}


def training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """What runs instead of a JVM: `script`, whose last argument is the archive's file."""
    interpreter = tmp_path / "interpreter"
    interpreter.write_text(f"#!/bin/sh\n{script}\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))


def archive_of(environ: dict[str, str]) -> Path:
    return archives.class_archive(Path(environ["JAVA_HOME"]), environ)


def test_made_once_and_then_used(tmp_path, environ, monkeypatch):
    training(monkeypatch, tmp_path, MAKES)
    said: list[str] = []
    assert archives.archive_options(environ) == ""
    assert archives.make_archive(environ, said.append)
    assert f'-XX:SharedArchiveFile="{archive_of(environ)}"' in archives.archive_options(environ)
    training(monkeypatch, tmp_path, FAILS)
    assert archives.make_archive(environ, said.append)
    assert len(said) == 1
    assert {file.name for file in archive_of(environ).parent.iterdir()} == {archive_of(environ).name, "lock"}


@pytest.mark.parametrize(
    ("script", "why"), [(FAILS, "no room"), ("exit 0", "status 0"), (f"{MAKES}; exit 1", "status 1")]
)
def test_one_that_cannot_be_made_is_told_of_and_no_failure(tmp_path, environ, monkeypatch, script, why):
    training(monkeypatch, tmp_path, script)
    said: list[str] = []
    assert not archives.make_archive(environ, said.append)
    log = archive_of(environ).with_suffix(".log")
    assert why in log.read_text()
    assert str(log) in said[-1]
    assert archives.archive_options(environ) == ""
    training(monkeypatch, tmp_path, MAKES)
    assert not archives.make_archive(environ, said.append)  # not at each start
    assert len(said) == 2
    assert archives.make_archive(environ, said.append, again=True)
    assert not log.exists()


def test_stopped_on_the_way_nothing_is_left_and_nothing_has_failed(tmp_path, environ, monkeypatch):
    """Also not what the training had started: Spark's JVM."""
    training(monkeypatch, tmp_path, f"sleep 600 & echo $! > {tmp_path}/jvm; wait")
    said: list[str] = []
    started = tmp_path / "jvm"
    assert not archives.make_archive(environ, said.append, lambda: started.is_file() and started.read_text() != "")
    assert {file.name for file in archive_of(environ).parent.iterdir()} == {"lock"}
    assert len(said) == 1
    wait_for(lambda: not psutil.pid_exists(int(started.read_text())), "what was started has ended")


def test_a_stack_makes_it_later_unless_it_has_stopped_before(tmp_path, environ, monkeypatch):
    training(monkeypatch, tmp_path, MAKES)
    stopping = Event()
    stopping.set()
    archives.make_archive_later(environ, stopping)
    assert not archive_of(environ).exists()
    monkeypatch.setattr(archives, "AFTER_S", 0)
    archives.make_archive_later(environ, Event())
    assert archive_of(environ).is_file()


def test_it_belongs_to_a_jdk_and_to_jars(tmp_path, environ, monkeypatch):
    first = archive_of(environ)
    assert archive_of(environ) == first
    home = Path(environ["JAVA_HOME"])
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.16"\n')
    updated = archive_of(environ)
    monkeypatch.setattr(archives, "jars_directory", lambda _: tmp_path / "other")
    assert len({first, updated, archive_of(environ), archive_of(environ | {"JAVA_HOME": str(tmp_path)})}) == 4


def test_those_used_last_are_kept(tmp_path, environ, monkeypatch):
    training(monkeypatch, tmp_path, MAKES)
    directory = archive_of(environ).parent
    directory.mkdir(parents=True)
    for age in range(6):
        old = directory / f"{age}.jsa"
        old.touch()
        os.utime(old, (age, age))
    (directory / ".new-killed").mkdir()
    archives.make_archive(environ, lambda _: None)
    kept = {archive_of(environ).name, "lock", *(f"{age}.jsa" for age in range(7 - archives.KEPT, 6))}
    assert {file.name for file in directory.iterdir()} == kept
    os.utime(archive_of(environ), (0, 0))
    archives.archive_options(environ)
    assert archive_of(environ).stat().st_mtime > 0


def test_without_a_jdk_named_there_are_no_options(environ):
    del environ["JAVA_HOME"]
    assert archives.archive_options(environ) == ""
