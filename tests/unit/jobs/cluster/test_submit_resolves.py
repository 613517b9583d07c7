"""`waystation submit` and `waystation jars` download the JVM libraries that are missing, with `java` played by a script
that puts an empty jar where Ivy would put many."""

import sys
from pathlib import Path

import pytest

from jobs.cli.main import main

CONF = Path(__file__).parents[4] / "conf"
IVY = """#!/bin/sh
if [ "$1" = --list-modules ]; then printf 'java.base@17.0.1\\njdk.incubator.vector@17.0.1\\n'; exit; fi
while [ $# -gt 0 ]; do
    case "$1" in
        -retrieve) into=${2%%/\\[conf\\]*} ;;
        -confs) shift; for conf; do mkdir -p "$into/$conf"; : > "$into/$conf/library-of-$conf-1.0.jar"; done ;;
    esac
    shift
done
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(IVY)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("WAYSTATION_CACHE", str(tmp_path / "cache"))


def waystation(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["waystation", *arguments])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.parametrize("application", ["router", "ledger", "audit"])
def test_a_submission_downloads_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], application: str
) -> None:
    """The line of the guide, on a machine that has nothing yet. The store's libraries are a set of their own."""
    line = ("submit", application, "--conf", str(CONF / "cluster.toml"), "--dry-run")
    assert waystation(monkeypatch, *line) == 0
    out, err = capfd.readouterr()
    assert "library-of-spark-1.0.jar" in out
    assert "library-of-s3-1.0.jar" in out
    assert err.count("downloading the JVM libraries") == 2
    assert waystation(monkeypatch, *line) == 0
    assert "downloading" not in capfd.readouterr().err


def test_jars_downloads_them_before(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert waystation(monkeypatch, "jars", "s3") == 0
    capfd.readouterr()
    assert waystation(monkeypatch, "submit", "ledger", "--conf", str(CONF / "cluster.toml"), "--dry-run") == 0
    assert "downloading" not in capfd.readouterr().err


def test_a_store_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert waystation(monkeypatch, "jars", "azure") == 1
    assert "unknown object store azure: choose from s3" in capfd.readouterr().err
