"""`waystation doctor` says what is used and why; what cannot be used is never ok."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.cli.findings import cache, class_archive_of, data_directory, java, jvm_libraries
from jobs.errors import JavaError
from jobs.stack.java import REMEDY
from jobs.stack.memory_limit import available_bytes

Run = Callable[..., int]
NOBODY = 65_534


@pytest.fixture
def said(run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """What doctor says of each subject, with variables set."""

    def of(*arguments: str, **variables: str) -> dict[str, str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        run(*arguments, "doctor")
        found: dict[str, str] = {}
        subject = ""
        for line in capfd.readouterr().out.splitlines():
            subject = line[9:23].strip() or subject
            found[subject] = found.get(subject, "") + f"{line[:7].strip()} {line[23:]}\n"
        return found

    return of


def test_the_remedy_of_a_missing_jdk_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_found(_environ: object) -> None:
        raise JavaError(f"no full JDK of version 17 or 21 was found; found: /jre is Java 11: {REMEDY}")

    monkeypatch.setattr("jobs.cli.findings.find_java", none_found)
    assert java({}).remedy == REMEDY


def test_a_java_home_that_cannot_be_used_is_a_warning_with_what_is_used(said: Callable[..., dict[str, str]]) -> None:
    found = said(JAVA_HOME="/nonexistent")["Java"]
    assert found.startswith("warning ")
    assert "JAVA_HOME is /nonexistent, which has no bin/java" in found
    assert "found by" in found
    assert "Fix: set JAVA_HOME to a full JDK" in found


def test_it_says_which_python_cache_configuration_and_data_it_uses(
    said: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    overlay = tmp_path / "mine.toml"
    overlay.write_text("[log]\nlevel = 'debug'\n")
    found = said("--conf", str(overlay), WAYSTATION_CACHE=str(tmp_path / "cache"), WAYSTATION_KAFKA__PREFIX="secret.")
    assert "python" in found["Python"]
    assert f"{tmp_path / 'cache'} (WAYSTATION_CACHE)" in found["cache"]
    assert "base.toml, " in found["configuration"]
    assert f"local.toml, {overlay}; overridden by WAYSTATION_KAFKA__PREFIX" in found["configuration"]
    assert "secret." not in found["configuration"]
    assert f"{tmp_path} (--data)" in found["data"]
    assert "127.0.0.1 is free" in found["ports"] or "taken" in found["ports"]


def test_a_file_that_the_configuration_names_must_be_there(said: Callable[..., dict[str, str]]) -> None:
    found = said(
        WAYSTATION_GATEWAY__AUTHENTICATION__METHODS='["password"]',
        WAYSTATION_GATEWAY__AUTHENTICATION__PASSWORD__FILE="/nowhere/passwords",
    )["files"]
    assert found.startswith("problem cannot read gateway.authentication.password.file = /nowhere/passwords: No such")


def test_a_port_has_one_listener(said: Callable[..., dict[str, str]]) -> None:
    found = said(WAYSTATION_GATEWAY__MQTT_PORT="21883", WAYSTATION_GATEWAY__HTTP_PORT="21883")["ports"]
    assert "problem gateway.http_port and gateway.mqtt_port are both 21883" in found


def test_data_that_is_no_directory_is_a_problem(said: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert said("--data", str(tmp_path / "file"))["data"].startswith("problem ")


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 8_000),
        ({"memory.max": "max\n", "memory.current": "1000\n"}, 8_000),
        ({"memory.max": "3000\n", "memory.current": "1000\n"}, 2_000),
        ({"memory.max": "9000000\n", "memory.current": "1000\n"}, 8_000),
        ({"memory.max": "1000\n", "memory.current": "1500\n"}, 0),
        ({"memory.max": "3000\n", "memory.current": "2000\n", "memory.stat": "anon 1\ninactive_file 500\n"}, 1_500),
        ({"memory/memory.limit_in_bytes": "3000\n", "memory/memory.usage_in_bytes": "0\n"}, 3_000),
    ],
)
def test_a_container_has_what_its_limit_leaves(tmp_path: Path, files: dict[str, str], available: int) -> None:
    (tmp_path / "memory").mkdir()
    for details in ("memory.stat", "memory/memory.stat"):
        (tmp_path / details).touch()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert available_bytes(8_000, tmp_path) == available


@pytest.mark.parametrize("below", ["file", "file/a/b"])
def test_a_data_directory_that_can_never_be_made(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    (finding,) = data_directory(tmp_path / below, "--data")
    assert f"{tmp_path}/file is not a directory" in finding.found
    assert finding.remedy == "name another directory with --data"


@pytest.fixture
def unseen(tmp_path: Path) -> Iterator[Path]:
    """A path in a directory that the present user may not look into."""
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    if is_root := os.geteuid() == 0:
        tmp_path.chmod(0o755)
        os.setresuid(NOBODY, NOBODY, 0)  # os.access goes by the real user
    try:
        yield closed / "below"
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        closed.chmod(0o700)


def test_a_directory_that_this_user_may_not_look_into_is_a_problem(unseen: Path) -> None:
    """Data directory, cache and JAVA_HOME, and none of them ends doctor."""
    environ = {"WAYSTATION_CACHE": str(unseen), "JAVA_HOME": str(unseen), "PATH": str(unseen)}
    findings = [
        *data_directory(unseen, "--data"),
        cache(unseen, environ),
        jvm_libraries(environ),
    ]
    assert [finding.level for finding in findings[-3:]] == ["problem"] * 3
    assert class_archive_of(environ).subject == "class archive"
    assert f"JAVA_HOME is {unseen}, which has no bin/java" in java(environ).found


@pytest.mark.parametrize(
    ("client", "what"),
    [
        ("{'security.protcol' = 'ssl'}", 'No such configuration property: "security.protcol"'),
        ("{'security.protocol' = 'tsl'}", 'Invalid value "tsl" for configuration property "security.protocol"'),
    ],
)
def test_a_setting_that_the_kafka_client_refuses_is_a_problem(
    said: Callable[..., dict[str, str]], client: str, what: str
) -> None:
    found = said(WAYSTATION_KAFKA__CLIENT=client)["configuration"]
    assert f"problem kafka.client cannot be used: {what}" in found
    assert "Fix: correct it" in found


def test_an_empty_data_directory_is_refused(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """A script whose variable is not set must not use the present directory."""
    assert run("--data", "", "doctor") == 2
    assert "name a directory, or leave the option out" in capfd.readouterr().err
