"""The command line, but for what needs a stack: one sentence for every error, results in three formats."""

import io
import json
import socket
import sys

import pyarrow as pa
import pytest
from argon2 import PasswordHasher
from deltalake import write_deltalake

from jobs.query.ledger_reader import installed_views
from schemas.password_file import parse


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["status"], "no stack is running in"),
        (["router", "replace"], "no stack is running in"),
        (["publish", "a", "b"], "no stack is running in"),
        (["subscribe", "a/#", "--address", "nowhere"], "'nowhere' is not an address"),
        (["query", "SELECT * FROM messages"], "there are no tables in"),
        (["query"], "the SQL is missing"),
        (["journey", "x"], "there are no tables in"),
        (["--conf", "/nowhere.toml", "up"], "cannot read the configuration file /nowhere.toml"),
    ],
)
def test_an_error_is_one_sentence_on_stderr(run, capfd, arguments, sentence):
    assert run(*arguments) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("options", [[], ["--detach"]])
@pytest.mark.parametrize("below", ["file", "file/below"])
def test_a_data_directory_that_cannot_be_written_ends_up_with_one_sentence(run, capfd, tmp_path, options, below):
    (tmp_path / "file").touch()
    data = tmp_path / below
    assert run("--data", str(data), "up", *options) == 1
    err = capfd.readouterr().err
    assert f"cannot write {data}/" in err
    assert f"make the data directory {data} a directory that this user can write to" in err
    assert err.count("\n") == 1


def test_a_data_directory_whose_lock_cannot_be_written_ends_up_with_one_sentence(run, capfd, tmp_path):
    (tmp_path / "up.lock").mkdir()
    assert run("up") == 1
    err = capfd.readouterr().err
    assert f"cannot write {tmp_path}/up.lock: Is a directory; " in err
    assert err.count("\n") == 1


def test_down_where_nothing_runs_is_no_error(run, capfd):
    assert run("down") == 0
    assert "nothing to stop: no stack is running in" in capfd.readouterr().out


def test_a_taken_port_ends_up_with_one_sentence(run, capfd, monkeypatch):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        monkeypatch.setenv("WAYSTATION_GATEWAY__MQTT_PORT", str(port))
        assert run("doctor") == 1
    shown = capfd.readouterr().out
    assert f"gateway.mqtt_port {port} on 127.0.0.1 is used by another program" in shown
    assert "Fix: stop the program" in shown


def test_doctor_explains_a_wrong_configuration(run, capfd, monkeypatch):
    monkeypatch.setenv("WAYSTATION_LOG__LEVEL", "loud")
    assert run("doctor") == 1
    assert 'environment variable WAYSTATION_LOG__LEVEL: log.level = "loud" is not allowed' in capfd.readouterr().out


def test_query_formats(run, capfd, tmp_path):
    rows = {"id": ["m1"], "payload": [b"hi"], "qos": [1]}
    write_deltalake(str(tmp_path / "tables" / "messages"), pa.table(rows))
    sql = "SELECT id, payload, qos, NULL AS nothing, [1, 2] AS list FROM messages"
    assert run("query", sql, "--format", "csv") == 0
    assert capfd.readouterr().out == 'id,payload,qos,nothing,list\nm1,hi,1,,"[1, 2]"\n'
    assert run("query", sql, "--format", "json") == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer == [{"id": "m1", "payload": "hi", "qos": 1, "nothing": None, "list": [1, 2]}]
    assert run("query", sql) == 0
    shown = capfd.readouterr().out
    assert "m1" in shown
    assert "1 row" in shown


def test_tables_are_listed_with_their_columns(run, capfd):
    assert run("query", "--tables") == 0
    shown = capfd.readouterr().out
    assert "messages: Every accepted message, once" in shown
    assert "array<struct<shard:int" in shown


def test_views_are_listed_with_their_meaning_and_columns(run, capfd):
    assert run("query", "--tables") == 0
    shown = capfd.readouterr().out
    assert "view message_journey: Everything that happened to a message, one row per step." in shown
    assert "view delivery_latency: Milliseconds from accepting a message to each of its deliveries, by the" in shown
    for name in installed_views():
        assert f"view {name}: " in shown
    assert "fan_out" in shown


def test_help_teaches(run, capfd):
    assert run("--help") == 0
    assert run("up", "--help") == 0
    shown = capfd.readouterr().out
    assert "waystation subscribe 'greetings/#'" in shown
    assert "waystation up --detach" in shown


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "Is a directory"), (b"a:\xff", "byte 2 is not UTF-8; save it as UTF-8")],
)
def test_a_password_file_that_cannot_be_read_is_named_once(run, capfd, tmp_path, content, reason):
    file = tmp_path / "passwords"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert run("passwd", str(file), "alice") == 1
    assert capfd.readouterr().err == f"cannot change {file}: {reason}\n"


def test_passwords_are_written_for_the_gateway_to_read(run, capfd, tmp_path, monkeypatch):
    """R11: a new file is for its owner alone; an existing one keeps its mode and its other lines."""
    file = tmp_path / "passwords"

    def passwd(user, password, *more):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{password}\n"))
        return run("passwd", str(file), user, *more)

    assert passwd("alice", "first") == 0
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("# ours\n" + file.read_text())
    file.chmod(0o640)
    assert passwd("bob", "other") == 0
    assert passwd("alice", "second") == 0
    users = parse(file.read_text(), "passwords")
    assert list(users) == ["alice", "bob"]
    assert PasswordHasher().verify(users["alice"], "second")
    assert file.read_text().startswith("# ours\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert passwd("bob", "", "--delete") == 0
    assert list(parse(file.read_text(), "passwords")) == ["alice"]
    out, err = capfd.readouterr()
    assert [line.removesuffix(f" {file}") for line in out.splitlines()] == [
        "user alice added to",
        "user bob added to",
        "user alice changed in",
        "user bob removed from",
    ]
    assert err == ""


@pytest.mark.parametrize(
    ("user", "password", "more", "sentence"),
    [
        ("a:b", "x", (), "'a:b' is not a valid user name"),
        ("#a", "x", (), "'#a' is not a valid user name"),
        ("alice", "", (), "the password is empty"),
        ("alice", "x", ("--delete",), "has no user 'alice'"),
    ],
)
def test_a_wrong_user_or_password_changes_nothing(run, capfd, tmp_path, monkeypatch, user, password, more, sentence):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{password}\n"))
    assert run("passwd", str(tmp_path / "passwords"), user, *more) == 1
    shown = capfd.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
