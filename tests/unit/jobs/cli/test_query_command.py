"""`waystation query` and `journey` as people use them: pasted SQL, several statements, rows that do not fit."""

import io
import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import NOON, completion, instruction, message, outcome

UNTOUCHED = {"outcome": "untouched", "shard": None, "number": None, "client": None, "qos": None}


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    tables = str(tmp_path / "tables")
    later = NOON + timedelta(seconds=1)
    append(tables, "messages", [
        message("m1", NOON), message("m2", later, destination="a/b/d"), message("m3", later, destination="$presence/x"),
        message("early", NOON - timedelta(seconds=1), destination="a/b/d"),
    ])  # fmt: skip
    append(tables, "instructions", [instruction("m1", NOON, 0)])
    append(tables, "outcomes", [
        outcome("m1", NOON, 0), outcome("m2", later, 0, **UNTOUCHED), outcome("m2", later, 0, number=None),
    ])  # fmt: skip
    append(tables, "completions", [completion("m1", NOON, 0), completion("m2", later, 0)])
    early = {"message_id": "early", "partition": 0, "appended": NOON}
    carried = {"event": "propagated", "agent": "http:van", "peer": "http:bus", "at": NOON - timedelta(hours=1)}
    taken = {"event": "delivered", "agent": "platform", "origin": "van", "peer": "a/b/d", "at": NOON}
    append(tables, "message_presence_history", [{**early, "offset": n} | e for n, e in enumerate((carried, taken))])
    return tables


def given_on_stdin(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sql.encode())))


@pytest.mark.parametrize("way", ["argument", "file", "stdin"])
def test_pasted_sql_may_begin_with_comments_and_have_several_statements(run, capfd, monkeypatch, tmp_path, way) -> None:
    sql = "--first\n-- a = 'é;'\nSELECT 'é;' AS x; /* ; */ SET threads = 1;;\nSELECT 2 AS y -- ;\n;\n"
    if way == "file":
        (tmp_path / "q.sql").write_text(sql)
    given_on_stdin(monkeypatch, sql)
    arguments = {"argument": [sql], "file": ["--file", str(tmp_path / "q.sql")], "stdin": ["-"]}[way]
    assert run("query", *arguments) == 0
    assert capfd.readouterr().out == "x\n──\né;\n1 row\ny\n─\n2\n1 row\n"
    given_on_stdin(monkeypatch, sql)
    assert run("query", "--format", "csv", *arguments) == 0
    assert capfd.readouterr().out == "x\né;\n\ny\n2\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-- only a comment"], "the SQL contains no statement"),
        (["SELECT 1", "--file", "x"], "the SQL is given twice"),
        (["--file", "/nowhere.sql"], "cannot read the file /nowhere.sql: No such file"),
        (["SELECT at FROM outcomes"], 'put column names that are SQL keywords into double quotes: "at"'),
        (["SELECT offset FROM messages LIMIT 5"], 'SQL keywords into double quotes: "offset"'),
        (["SELECT limit, 1 FROM instructions"], 'SQL keywords into double quotes: "limit"'),
        (["SELECT [1"], "syntax error"),
        (["SELECT * FROM outcome"], "outcome does not exist"),
        (["SELECT error('[/d] \x1b[31m \u202e')"], r"[/d] \x1b[31m \u202e"),
    ],
)
def test_a_mistake_is_one_sentence(run, capfd, ledger, arguments, sentence) -> None:
    assert run("query", *arguments) == 1
    shown = capfd.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1


def test_no_hint_about_quotes_without_need(run, capfd, ledger) -> None:
    for sql in (
        "SELECT 'at' FROM FROM outcomes LIMIT 5",
        'SELECT "at" FROM outcomes ORDER ORDER BY 1 LIMIT 5 OFFSET 2',
    ):
        assert run("query", sql) == 1
        assert "quotes" not in capfd.readouterr().err


def test_results_before_a_mistake_are_printed(run, capfd) -> None:
    assert run("query", "SELECT 1 AS x; SELECT nothing") == 1
    assert capfd.readouterr().out == "x\n─\n1\n1 row\n"


def test_a_table_has_a_limit_and_says_so(run, capfd) -> None:
    def lines(*arguments: str) -> list[str]:
        assert run("query", *arguments) == 0
        return capfd.readouterr().out.splitlines()

    assert lines("FROM range(101)")[-2:] == ["   99", "first 100 rows; --limit 0 shows all"]
    assert lines("FROM range(100)")[-1] == "100 rows"
    assert lines("--limit", "0", "FROM range(101)")[-1] == "101 rows"
    assert lines("--limit", "1", "FROM range(101)")[-1] == "first 1 row; --limit 0 shows all"
    assert len(lines("--format", "csv", "FROM range(101)")) == 102
    assert lines("--format", "csv", "--limit", "1", "FROM range(101)") == ["range", "0"]
    assert len(json.loads("".join(lines("--format", "json", "FROM range(101)")))) == 101


def test_a_wide_table_is_vertical_at_80_columns_and_ids_are_whole(run, capfd, ledger, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("query", "SELECT * FROM messages ORDER BY accepted, id") == 0
    shown = capfd.readouterr().out
    assert shown.startswith("── 1 ──\nid ")
    assert "\naccepted       2026-03-04T12:00:00.000000Z\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert run("query", "--vertical", "SELECT 1 AS x") == 0
    assert capfd.readouterr().out == "── 1 ──\nx  1\n1 row\n"
    assert run("query", "--no-vertical", "SELECT repeat('x', 100) AS x") == 0
    assert capfd.readouterr().out.splitlines()[2] == "x" * 100


def test_steps_of_a_journey_with_equal_times_are_in_order(run, capfd, ledger) -> None:
    """The same in the view, which is what people ask with SQL."""

    def steps(*arguments: str) -> list[str]:
        assert run(*arguments, "--format", "csv") == 0
        return [line.split(",")[2] for line in capfd.readouterr().out.splitlines()[1:]]

    asked = 'SELECT message_id, "at", step FROM message_journey WHERE message_id = \'{}\' ORDER BY "at", step_order'
    for name, wanted in (
        ("m1", ["accepted", "appended", "routed", "delivered", "completed"]),
        ("m2", ["accepted", "appended", "untouched", "delivered", "completed"]),
    ):
        assert steps("journey", name) == wanted
        assert steps("query", asked.format(name)) == wanted


def test_a_journey_names_the_part_of_the_mesh(run, capfd, ledger) -> None:
    """M9, M20: who carried a message before the platform took it, by the id that it has on every way."""
    assert run("journey", "early", "--format", "csv") == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(",", 2)[2] for line in lines if "mesh: " in line] == [
        "mesh: propagated,http:van,to http:bus",
        "mesh: delivered,platform,of van to a/b/d",
    ]
    assert any("accepted" in line for line in lines)


def test_the_words_of_a_message_ahead_of_its_route_agree(run, capfd, ledger) -> None:
    assert run("journey", "m2") == 0
    shown = capfd.readouterr().out
    assert "no instruction: no route was active" in shown
    assert "direct delivery by shard 0: retained, or its route was not active yet" in shown
    assert "nobody" not in shown


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["--last"], ["m2"]),
        (["--last", "--format", "json"], ["m2"]),
        (["--last", "2"], ["m1", "m2"]),
        (["--topic", "a/b/c"], ["m1"]),
        (["--topic", "a/b/d", "--last"], ["m2"]),
        (["--last", "5", "--topic", "a/b/d"], ["early", "m2"]),
        (["--topic", "$presence/x"], ["m3"]),
        (["m1"], ["m1"]),
    ],
)
def test_journeys_of_the_last_messages(run, capfd, ledger, arguments, ids) -> None:
    assert run("journey", *[one for one in arguments if one not in ("--format", "json")], "--format", "json") == 0
    rows = json.loads(capfd.readouterr().out)
    assert list(dict.fromkeys(row["message_id"] for row in rows)) == ids
    assert run("journey", *arguments) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give either the id of one message, or --last"),
        (["m1", "--last"], "give either the id of one message, or --last"),
        (["none"], "the ledger has no message none"),
        (["--topic", "a/#"], "no message on the topic a/#"),
    ],
)
def test_journeys_of_no_message(run, capfd, ledger, arguments, sentence) -> None:
    assert run("journey", *arguments) == 1
    assert sentence in capfd.readouterr().err
